// Package quota tracks the limits of the servers that a client calls. A [Tracker] learns them
// from responses, which package quota/headers parses. A heed.Transport has a Tracker of its own
// unless its Quota is set:
//
//	tracker := &quota.Tracker{Mode: quota.Full} // estimate limits that responses do not state
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
//	overload        failures depend on the requests in flight, so fewer of these are sent
//	slow start      a wait has ended, so that requests are sent at a growing rate
//
// [Tracker.Mode] adds rules 6 and 7 below (Full) or switches off all but the first (Disabled), and
// [Tracker.NeverTest] the tests of what the server states. [Tracker.Forget] drops what is known. [Events] report holds and
// limits as they are learned. docs/server-limits.md of the repository explains the rules.
//
// # Rules
//
//  1. A rejected request is sent again no earlier than its own response stated, see heed.RetryPolicy.
//  2. A statement that nothing is left delays the requests of a quota until the time that it states.
//  3. Rejections delay others only if requests that were sent later are rejected as well.
//  4. While requests wait, one at a time is sent as a test, at most one per second and host, and more as guesses while a reset that
//     is rounded may be over.
//  5. A statement that accepted requests contradict is ignored until rejections coincide with it.
//  6. With Full: while a fifth of the responses are failures, fewer requests are in flight, if that helps.
//  7. With Full: if rejections without a time depend on the rate, requests are sent at the rate that is accepted.
//  8. Nothing else delays a request, except what follows a wait.
//  9. Permissions, missing pages, latency and canceled requests show nothing about limits.
//  10. Every wait has a name, is visible, and can be switched off.
//
// # Requests and responses
//
// A quota is what a server counts requests against. An endpoint holds the quotas of one account: a
// scheme, a host and credentials. Responses show which quota the requests of a route use: a method
// and a path without identifiers. [Tracker.Demand] returns the quota of a request as a
// throttle.Limiter, which grants a claim if all of these admit it, in this order:
//
//	hold           no claim until the stated end, or until a test is accepted
//	estimates      the units that are left of each limit that the server states
//	learned rate   the time between two requests, or the requests in a learned window
//	overload       a bound on the requests in flight
//	slow start     a bound on the requests in flight that grows with time
//
// [Tracker.Feedback] classifies a response and finds its quota, which observes it:
//
//	states a limit            corrects the estimate of that limit
//	does not state a limit    takes one unit from its estimate, unless the request failed
//	success                   ends a hold, if it was sent after all rejected requests
//	rejected                  lowers a learned limit; otherwise begins or confirms a hold
//	failed                    counts for the overload
//	canceled by its caller    nothing
//	403 or 404                nothing: they show missing permissions and pages
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
// r (t - t0), where r is a lower bound from two responses. Of a sliding log, the next response states
// what has come back. A sliding counter returns what is used at T evenly until the
// next reset; it is recognised by the first response after T, which is therefore asked for when
// one unit would be back. If R falls by more than one unit for each request of this process, because
// of their cost or of other clients, R suffices for fewer requests.
//
// An estimate that no rejection has confirmed delays requests for at most a second. One that
// more accepted requests contradict than were left is ignored until rejections coincide with it.
//
// # Holds and tests
//
// One rejection shows that one request is rejected: one resource, tenant or backend may be. So it
// delays only that request. A hold begins when requests that were sent after it arrived, and were
// not rejected before, are rejected as well: at least four, and more where rejections and failures
// are frequent, so that random ones begin a hold once in a hundred times. A hold ends at the latest
// time that a rejection stated, or when a later request is accepted. While requests wait, one at a
// time is sent as a test: after a round trip, and then after pauses that grow by half from a
// second. After two holds that were right, the first rejection begins the next one, and the pauses go
// on from one hold to the next, so that short ones are tested, too. What has waited is sent at a growing
// rate.
//
// A first attempt whose wait fails, because its deadline or MaxWait is near, is sent instead, as its
// last chance: what it waited for may be wrong. During a hold, 64 are sent so, and before a stated T
// one, or none if it is proven that all units come back together at T. Each one that is accepted, and
// each accepted test, permits two more. Until two holds were right, a call that cannot wait until the
// end that a rejection stated fails after a round trip, in which the server would have rejected it.
//
// # Learned rates
//
// After a hold that was right and whose end the server had not stated, what was accepted before it
// is tried as a window: so many requests in so long a time. If that proves wrong, or the times fit no
// window, the rate loop begins with the rate that was accepted. It increases the rate until a
// rejection, returns to the rate that was accepted, and after a while exceeds it again, as CUBIC does.
// A rate is also tested where a fifth of the requests is rejected, or fails whatever the number in
// flight, and dropped if that does not become rarer. While calls wait for an estimate, it is doubled
// for ten seconds, at pauses of 10 to 640 s, and stays doubled if most of the requests are accepted.
// A window is doubled only when calls give up because they waited for it.
//
// # Overload
//
// While a fifth of the latest 64 responses are failures or rejections without a time, the requests
// in flight are bounded: by a quarter of them, until failures are likely to be a quarter as frequent, and then by 0.7 times
// as many after each round trip with a failure, and more after each without. If failures are as frequent
// with few in flight, the number is restored, and the rule rests for a minute or longer.
//
// # Internal packages
//
// The models have no clock and no lock, and are in internal packages: statedlimit estimates a limit that is
// stated, learnedlimit infers one from rejections, hold stops requests, concurrency bounds those in
// flight, which inflight counts, and peers divides what is left among processes. Package model combines
// them: it decides on the requests of one quota. Package routes tells which requests are alike, and
// credentials which have one account. This package decides which quota a request and its response concern,
// and has the clock and the locks.
package quota
