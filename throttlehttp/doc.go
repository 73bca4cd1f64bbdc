// Package throttlehttp limits the requests that an HTTP server accepts. It uses the same
// limiters as clients: see package throttle.
//
//	limit := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{
//		Limiter: keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerSecond(10)}),
//		Key:     throttlehttp.IP{}.Key, // 10 requests per second from each address
//	}}}
//	http.ListenAndServe(":8080", limit.Handler(mux))
//
// # What is limited, and how
//
// A [Middleware] asks limiters whether a request may be served. A [Rule] combines one
// limiter with a key and a cost:
//
//	a limit per client and a total limit     several Rules, with and without Key
//	a cost per request                       Rule.Cost, known before; Rule.FinalCost, known after
//	failed requests only                     Rule.FinalCost: OnStatus
//	a cost that the handler reports          AddCost, and Response.AddedCost in Rule.FinalCost
//	a concurrency limit                      throttle.NewConcurrency
//	delay instead of rejection               Middleware.Queue
//	soft limits, and borrowing               throttle.NewSoftLimit
//	a trial of a limit                       throttle.Shadow; responses do not state the limit
//	longer rejection of abusive clients      keyed.NewBan
//	a store that is down                     throttle.NewFallback, or Middleware.FailClosed
//	a custom response                        Middleware.OnReject, RejectionFrom
//	no limit, such as for health checks      a Rule.Cost that returns 0
//
// A Middleware wraps the handlers that it protects. Place it inside the middleware that
// its responses and keys need: authentication, if limits are per user, and CORS. Without
// CORS headers, browsers hide a 429 from scripts; a Middleware outside of CORS also counts
// preflight requests. CORS should expose Retry-After and the headers of the dialect.
//
// # Keys
//
// A limit per client needs a key for each client. A [KeyFunc] returns it:
//
//	the result of an authentication            FromContext
//	a secret, hashed                           Bearer, APIKey, APIKeyQuery, Cookie, Secrets
//	the address of the client                  IP, and IP.Region for a country or a network
//	an unverified header                       Header, BasicUser
//	the target of the request                  Method, Path, RoutePattern, Host
//	the first of several that is known         FirstOf, with Constant last for all other requests
//	several together                           Composite
//	any other function                         KeyFrom
//
// Three rules decide whether a limit is effective:
//
//   - A key that has not been verified can be made up: a client that wants more requests
//     sends a new key. Place the limit behind the authentication, set [Secrets.Validate],
//     or limit each address as well: a request must be granted by all of its limits.
//   - Behind proxies all connections have the address of a proxy. Set [IP.Trusted] to the
//     addresses of the proxies and [IP.Header] to the header that they set. The header is
//     ignored on connections from other addresses.
//   - Processes that share limits must compute equal keys. All functions except those of
//     [Secrets] do, and those of Secrets do if all processes use the same [Secrets.Key].
package throttlehttp
