// Package throttle decides who may go now, who later, and who never.
//
// # Vocabulary
//
// A [Limiter] grants or refuses a [Claim] of some units of its limit, under a key.
// Its answer is a [Decision]: granted, or refused with the time to ask again. What is
// refused is a value, not an error; an error means that no decision was reached. What
// the other side said about work that was done is [Feedback], and a limiter that
// learns from it is an [Observer].
//
// Limiters do arithmetic on a reading of the clock, and never sleep. Package
// throttle/queue lets callers wait: a queue.Queue keeps the callers that share limits in
// order, and grants their tickets at the instants at which the limits admit them.
//
// Units are int64 and saturate. Times are readings that a caller may bring along:
// claims replayed from a log decide as they did then. Zero values mean something
// useful: Claim{} asks for one unit now.
//
// # Life of a claim
//
//	            refused: nothing was taken, Decision.Wait says when to ask again
//	           /
//	Reserve ──<                        Cancel: it was not used, units go back
//	           \                      /
//	            granted ── act ──────<
//	                        │   ▲     \
//	                        ▼   │      Observe: it was used, and this came of it
//	                     Observe with More, any number of times
//
// A granted claim ends once, in Cancel or in Observe. Both want the Decision back as
// it was: it says where the units came from.
//
// Units that come back are worth less the longer they were held. A limit refills by
// itself, up to its burst, so time has given back a part of them already; the rest is
// what Cancel gives back. Act soon after a grant for the same reason, rather than
// claim now and act later.
//
// # Limiters
//
//	TokenBucket         steady rate with a burst, exact, one word of state; the default
//	RefillBucket        a bucket that is refilled in steps, as some servers do
//	LeakyBucket         books ahead: gives each claim its place in line, a fixed pace
//	Nginx               what nginx limit_req would decide, with its rounding
//	TickQueue           a queue that is served at the ticks of a clock
//	FixedWindow         n per clock window, or per window from the first claim on
//	SlidingLog          n in any window, exactly; remembers each claim
//	SlidingCounter      n in any window, nearly; remembers two numbers
//	SubWindows          n in any window, to a k-th of it; remembers k numbers
//	Concurrency            n at a time, held until they end
//	Soft                marks what is over one limit, refuses what is over another
//	Elastic             lends over the limit while there is room to spare
//	Shadow              counts and marks, refuses nothing: to try a limit out
//	Adaptive            finds the rate of a server that says nothing but no: AIMD or CUBIC
//	AdmissionControl         refuses some claims at random while a server refuses many
//	AllOf               grants what all of several limiters grant, takes all or nothing
//	Fallback            asks a second limiter when the first cannot decide
//	keyed.Limiter       a limiter for each key, in bounded memory; package throttle/keyed
//	keyed.Buckets       a token bucket for each key, in 16 bytes
//	keyed.Ban           rejects all claims of a key that keeps exceeding its limit, for a while
//	sketch.Limiter      n in any window for each of millions of clients, in fixed memory
//	xtime.New           a *rate.Limiter of golang.org/x/time/rate that you already have; package rate/xtime
//	warmup.Limiter      begins slowly, or saves up idle time; a claim pays later; package warmup
//	Unlimited, Blocked  grants everything; refuses everything
//
// If in doubt take a TokenBucket. To keep within a limit of somebody else who counts
// in windows, take what counts as they do: a bucket of n per minute may take almost 2n
// within one of their minutes.
//
// A rate.Limiter gives any of them the methods of a *rate.Limiter: Allow, Reserve, Wait.
//
// # Your own
//
// A Limiter is two methods. Reserve decides for c.Now, or for your own clock if that
// is zero, and takes c.Units() unless c.DryRun is set; Cancel gives them back. Put what
// you need to find the units again into Decision.Grant. A wrapper around somebody
// else's limiter hands Decisions back unchanged and forwards what is observed with
// [Observe]. See the example of [Limiter].
//
// Then let package throttletest try it. It knows what tends to go wrong: it plays
// thousands of histories with claims that are held and cancelled, older readings,
// clocks that leap, and costs that overflow, and says which promise was broken.
package throttle
