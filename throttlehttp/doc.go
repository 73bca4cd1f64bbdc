// Package throttlehttp limits the requests that a server takes, by the same
// limiters that a client limits itself with.
//
// # What is limited, and how
//
// A [Middleware] asks limiters, and it is they who differ. A [Rule] says for whom:
//
//	each client, and all together      several Rules, with Key and without
//	a price per request                Rule.Cost, known before; Rule.FinalCost, known after
//	only what fails                    Rule.FinalCost: OnStatus
//	what the handler says it cost      Spend, and Response.AddedCost in Rule.FinalCost
//	how many at a time                 throttle.Concurrency
//	later instead of never             Middleware.Queue
//	warned first, or lent              throttle.SoftLimit, Elastic
//	tried out                          throttle.Shadow, with Rule.Hidden
//	longer for who does not listen     keyed.Ban
//	while a store is down              throttle.Fallback, or Middleware.FailClosed
//	an answer of your own              Middleware.OnReject, RejectionFrom
//	not at all                         Rule.Cost of 0: for health checks, or friends
//
// A Middleware stands around what it protects, and inside of what its answers need.
// That is the authentication, if users have limits, and CORS: else browsers hide a 429
// from scripts, and the questions that they ask before a request are counted as well.
// CORS should also expose Retry-After and the headers of the dialect.
//
// # Who is asking
//
// A limit per client needs a name for each, and clients lie. A [KeyFunc] finds it:
//
//	by what an authentication found out        FromContext
//	by a secret, hashed                        Bearer, APIKey, APIKeyQuery, Cookie, Secrets
//	by where the connection comes from         IP, and IP.Region for a country or a network
//	by what the client says                    Header, BasicUser, Named
//	by what is asked for                       Method, Path, RoutePattern, Host
//	by the first of several that can tell      FirstOf, with Anonymous last if all others are one
//	by several together                        Composite
//
// Three things decide whether a limit is one:
//
//   - A name that nobody has checked is free: who needs more requests makes up more
//     names. Put the limit behind the authentication, give [Secrets] a Known, or limit
//     each address as well; several limits on a request are one decision.
//   - Behind proxies all clients have one address, and only the proxies know better.
//     Tell [IP] which they are, and which header they set; nobody else is believed.
//   - Processes that share limits must agree about names. All but those of [Secrets]
//     do, and these do with one Key.
package throttlehttp
