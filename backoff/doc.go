// Package backoff says how long to wait before trying again, and whether to.
//
// A [Policy] maps the number of an attempt to a delay. It is a plain value
// without state: one of them serves any number of goroutines, draws cost one call
// of math/rand/v2 and no memory.
//
//	var policy backoff.Exponential // 500 ms, doubling up to 30 s, full jitter
//	d := policy.Delay(1, 0)        // after the first attempt failed
//
// # Which jitter
//
// Clients that failed together come back together unless chance spreads them. With
// c = min(Max, Base·Factor^(attempt-1)), prev the delay before this one and U[a, b)
// a uniform draw, a delay is
//
//	Full          U[0, c)                          the default: the fewest requests and the smallest crowd
//	Equal         c/2 + U[0, c/2)                  where an early retry is useless, such as a restart that takes time
//	Decorrelated  U[Base, min(Max, prev·Factor)]   grows by its own draws: late clients drift away from early ones
//	PlusMinus     c ± Spread                       where people expect the delays that they configured
//	None          c                                one client only, or where something else spreads the load
//
// The first three and the simulations that compare them are from Marc Brooker,
// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. Ours differ in one
// thing: Max bounds the range of a draw, not the draw. To clip the draw instead
// looks right and puts two thirds of decorrelated clients on exactly Max, where
// they are a crowd again.
//
// # What a server says
//
// A wait that a server asked for is a lower bound: [RetryAfterJitter] spreads upwards from it.
//
// # Whether to retry at all
//
// Delays spread an outage, they do not shrink it: with four attempts each, a server
// that is down gets four times its load. [Budget] bounds retries to a share of the
// requests, the remedy of "Handling Overload" and "Addressing Cascading Failures"
// in Site Reliability Engineering, O'Reilly 2016.
//
// # The first request
//
// No policy helps jobs that all start at noon, because nothing has failed yet:
// [Offset] spreads their beginning.
//
// # Other libraries
//
// Package backoff/cenkalti makes any policy a BackOff of github.com/cenkalti/backoff/v4,
// and a BackOff a policy.
package backoff
