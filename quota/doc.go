// Package quota tracks the limits of the servers that a client calls. A [Tracker] learns them
// from responses, which package quota/headers parses. A heed.Transport has a Tracker of its own
// unless its Quota is set:
//
//	tracker := &quota.Tracker{Mode: quota.StatedOnly} // obey statements, estimate nothing
//	client := heed.NewClient(&heed.Transport{Quota: tracker})
//
// # Names of limits
//
// Errors, heed.Info and traces name the limit that a request waited for. Limits of a
// server are named by its host, a colon and a space, and one of these:
//
//	quota           the server states how many requests are left, and all of these are in flight
//	retry-after     the server rejected a request and asked the client to stop
//	learned rate    the server rejects requests without stating a limit, so its rate is estimated
//	slow start      little is known of the host yet, so few requests are in flight
//	slow responses  the server responds late or fails, so no more requests are in flight than before
//
// [Tracker.Mode] switches off the last three (StatedOnly) or all of them (Disabled),
// [Tracker.MaxHold] bounds how long a stated end is obeyed without a test, and
// [Tracker.Forget] drops what is known. [Events] report holds and limits as they are
// learned. All rules, with their figures, are in docs/server-limits.md and docs/estimates.md
// of the repository.
//
// # Requests and responses
//
// A quota is what a server counts requests against. An endpoint holds the quotas of one account: a
// scheme, a host and credentials. Responses show which quota the requests of a route use: a method
// and a path without identifiers. [Tracker.Demand] returns the quota of a request as a
// throttle.Limiter, which grants a claim if all of these admit it, in this order:
//
//	hold            no claim until its end, then one probe
//	slow start      a bound on the requests in flight, also after a 429 that states nothing
//	slow responses  a bound on the requests in flight
//	estimates       the units that are left of each limit that the server states
//	learned rate    the time between two requests, or the requests in a learned window
//
// [Tracker.Feedback] classifies a response and finds its quota, which observes it:
//
//	states a limit            corrects the estimate of that limit
//	does not state a limit    takes one unit from its estimate, unless the request failed
//	success                   counts for slow start and the accepted rate; as a probe, ends a hold
//	rejected, states a wait   begins a hold; evidence, unless a stated limit is used up
//	rejected, states nothing  evidence: bounds the requests in flight, or begins a hold
//	503, 403, no response     evidence, of another kind: begins a learned rate
//	late, or failed           begins slow responses
//
// It also remembers how many of the latest 20 responses to requests of each route were a 2xx. A 403
// that states nothing mostly means that a permission is missing. If 10 of them were a 2xx, it is
// probably temporary, and throttle.Feedback.RetryOnce is set.
//
// # Estimates
//
// An estimate models one limit that a server states. As in a Kalman filter, time predicts its
// state and responses correct it. The state is the size L, the units R that were left at the
// latest correction, at t0, the reset T, and how units return. With F claims in flight,
//
//	free(t) = R + returned(t0, t) - F - headroom
//
// may be sent. R may include some of F already; to subtract them twice only delays a request. A
// response corrects the state with what it states, L', R' and T':
//
//	to a claim after t0                L = L', R = R', T = T', t0 = now
//	to an earlier claim                the same if R' < R + returned, otherwise R stays
//	to an earlier claim, older window  nothing: it is out of date
//	states nothing                     R = R - 1
//
// A fixed window returns nothing before T; then one probe asks what is left. A bucket returns
// r (t - t0), where r is a lower bound from two responses. A sliding log returns each unit a
// window after this process took it. A sliding counter returns what is used at T evenly until the
// next reset; it is recognised by the first response after T, which is therefore asked for when
// one unit would be back. Units that are used, but not by this process, are used by other clients:
// then what is left is spread over the time until T.
//
// # Holds
//
// A hold ends at the time that the server stated. If it stated none, probes are sent when windows
// of usual lengths would end, of 1, 2, 3, 5, 10 ... seconds. Then one request, the probe, tests
// whether the hold is over. The other requests follow when the probe is accepted.
//
// # Slow start and slow responses
//
// Slow start bounds the requests in flight as in TCP. The bound grows from 4 to 18 with the first
// successes. After 100 it doubles in each round trip until less than half of it is used, and
// ends. It ends earlier if 50 requests succeeded and none is in flight. Slow start also follows a
// 429 that states nothing, until eight responses in a row are successful, and a hold whose limit
// was not learned.
//
// Slow responses begin with a late response, and keep the number of requests in flight, or with 4
// failures among 8 responses, and halve it. When a request that was sent after that gets a response
// in time, the bound doubles in the same way.
//
// # Learned rates
//
// A rate is learned when 5 of the last 8 responses are a 429 that states nothing about limits, or
// when 6 of the last 10 or 15 of the last 50 are a 503, a 403, a closed connection or a timeout
// that states nothing. After the 429s there is a hold first. If it took longer than sending the
// requests before it, they are tried as a learned window: so many requests in so long a time.
// Otherwise the rate loop begins with the rate that was accepted. It increases the rate until a
// rejection, returns to the rate that was accepted, and after a while exceeds it again, as CUBIC
// does. A learned rate ends when it has grown to four times the rate that the server was seen to
// accept and less than half of it is used, or when lower rates do not make rejections rarer.
//
// Requests also stop when those that slow start admits hang, because some servers reject late or
// never. Then a request that hangs counts as rejected as soon as it is late, until one of them is
// accepted after all.
//
// # Internal packages
//
// The models have no clock and no lock, and are in internal packages: statedlimit estimates a limit that is
// stated, learnedlimit infers one from responses alone, hold stops requests, concurrency bounds those in
// flight, which inflight counts, and peers divides what is left among processes. Package model combines
// them: it decides on the requests of one quota. Package routes tells which requests are alike, and
// credentials which have one account. This package decides which quota a request and its response concern,
// and has the clock and the locks.
package quota
