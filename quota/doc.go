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
// A quota ends at the reset that the server stated. A hold by retry-after ends at the time
// that the server stated. If it stated none, probes are sent when windows of usual lengths
// would end, of 1, 2, 3, 5, 10 ... seconds. Then one request, the probe, tests whether the hold
// is over. The other requests follow when the probe is accepted.
//
// A rate is learned when 5 of the last 8 responses are a 429 that states nothing about limits, or
// when 6 of the last 10 or 15 of the last 50 are a 503, a 403, a closed connection or a timeout
// that states nothing. A learned rate ends when it has grown to four times the rate that the
// server was seen to accept and less than half of it is used, or when lower rates do not make
// rejections rarer.
//
// Slow start ends after 100 successful responses. It also follows a 429 that states nothing,
// until eight responses in a row are successful. The state of slow responses ends when a
// request that was sent after its beginning gets a response in time.
//
// [Tracker.Mode] switches off the last three (StatedOnly) or all of them (Disabled),
// [Tracker.MaxHold] bounds how long a stated end is obeyed without a test, and
// [Tracker.Forget] drops what is known. [Events] report holds and limits as they are
// learned. All rules, with their figures, are in docs/server-limits.md and docs/estimates.md
// of the repository.
package quota
