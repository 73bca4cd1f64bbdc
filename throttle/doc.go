// Package throttle provides limiters of rates and of concurrency, which are a [Limiter].
//
// A [Claim] asks a Limiter for units, such as one for each request. The answer is a
// [Decision] that grants the claim, or rejects it and states how long to wait before asking
// again. A Limiter never sleeps. To block until a limiter grants a claim, use package
// throttle/queue, or package rate for the API of golang.org/x/time/rate.
//
//	limiter := throttle.NewTokenBucket(throttle.PerSecond(10))
//	d, err := limiter.Reserve(ctx, throttle.Claim{})
//	switch {
//	case err != nil: // no decision: for example, the limiter's store could not be reached
//	case d.OK:       // one unit was taken: start the work
//	default:         // rejected: try again after d.Wait
//	}
//
// # Choosing a limiter
//
//	NewTokenBucket      a steady rate with bursts; the default choice
//	NewRefillBucket     a bucket that is refilled in steps
//	NewLeakyBucket      a constant rate; assigns a start time to each queued claim
//	NewNginx            the decisions of nginx limit_req, including its rounding
//	NewTickQueue        a queue that is served at fixed instants
//	NewFixedWindow      at most n per window; up to 2n around an edge
//	NewSlidingLog       at most n in any window, exactly; remembers each claim
//	NewSlidingCounter   at most n in any window, approximately; constant memory, or
//	                    exactly in any k consecutive sub-windows with k numbers
//	NewConcurrency      at most n at the same time
//	adaptive.New        finds the rate of a server that only rejects: AIMD or CUBIC
//	adaptive.NewAdmissionControl
//	                    rejects claims at random while a server rejects many
//	AllowAll, DenyAll   grants every claim; rejects every claim
//
// If in doubt, use a token bucket. To stay within a limit that a server counts in windows,
// use the limiter that counts in the same way: a token bucket of n per minute can grant
// almost 2n within one of the server's minutes.
//
// # Combining limiters
//
//	AllOf               grants a claim only if all of its limiters do
//	NewFallback         asks a second limiter when the first cannot decide
//	NewSoftLimit        marks claims above one limit, rejects claims above another or
//	                    while a function does not allow them
//	Shadow              counts and marks, rejects nothing: for testing a limit
//	keyed.Limiter       one limiter for each key, in bounded memory
//	keyed.NewBuckets    one token bucket for each key, about 36 bytes each
//	keyed.NewBan        rejects all claims of a key that keeps exceeding its limit
//	sketch.Limiter      n in any window for each of millions of keys, in fixed memory
//	warmup.New          starts at a low rate, or saves up idle time
//	xtime.New           adapts a *rate.Limiter of golang.org/x/time/rate
//
// AllOf takes units from all of its limiters or from none. rate.New gives any limiter the
// methods of golang.org/x/time/rate: Allow, Reserve and Wait.
//
// # Life of a claim
//
//	            rejected: nothing was taken, ask again after Decision.Wait
//	           /
//	Reserve ──<                        Report Unused: units are returned
//	           \                      /
//	            granted ── work ─────<
//	                        │   ▲     \
//	                        ▼   │      Report Ended: used, with this outcome
//	                     Report Ongoing, any number of times
//
// A granted claim ends once, in a Report whose State is Ended or Unused. It needs the Decision
// that Reserve returned, unchanged: it identifies where the units came from. [Feedback] also
// states the outcome of the work, for limiters that learn from it.
//
// An Unused claim returns as many units as the limit has not already restored by itself. The
// longer a claim is held, the fewer are returned, so start the work soon after the grant.
//
// # Units and time
//
// Costs are int64 units and saturate; a zero Cost means 1. Time is read once per claim, from
// Claim.Now if the caller set it, so that claims can be replayed from a log.
//
// # Implementing a Limiter
//
// Reserve decides as of c.Now, or as of the limiter's own clock if c.Now is zero, and takes
// c.Units() unless c.DryRun is set. Report corrects the cost by [Feedback.ExtraCost].
// Decision.Grant is free for data that Report needs to find the units again. A wrapper embeds
// another limiter and replaces the methods that it changes; it must return the Decisions
// unchanged. If it combines several limiters, it can use [SubGrants].
//
// Package throttletest tests an implementation with thousands of histories, with held and
// Unused claims, clocks that jump, and costs that overflow.
package throttle
