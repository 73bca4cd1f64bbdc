// Package backoff computes how long to wait before retrying, and whether to retry at all.
//
// A [Policy] maps the number of an attempt to a delay. Most policies are plain values without
// state: one value serves any number of goroutines. A random delay costs one call of
// math/rand/v2 and no memory.
//
//	var policy backoff.Exponential // 500 ms, doubling up to 30 s, full jitter
//	d := policy.Delay(1, 0)        // after the first attempt failed
//
// # Which jitter
//
// Clients that fail at the same time retry at the same time unless jitter spreads them. With
// c = min(Max, Base·Factor^(attempt-1)), prev the previous delay, and U[a, b) a uniform random
// number, the delay is
//
//	Full          U[0, c)                          the default: the fewest requests, spread most evenly
//	Equal         c/2 + U[0, c/2)                  if an early retry is useless, such as during a restart
//	Decorrelated  U[Base, min(Max, prev·Factor)]   depends on its own previous delay: clients drift apart
//	PlusMinus     c ± Spread                       if delays should stay close to the configured ones
//	None          c                                for a single client, or if the load is spread by other means
//
// Full, Equal and Decorrelated, and the simulations that compare them, are from Marc Brooker,
// "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. One detail differs: here Max
// limits the range of the random number, not the number itself. Limiting the number would set
// two thirds of all decorrelated delays to exactly Max, so that clients would retry at the same
// time again.
//
// # Retry-After
//
// A wait that a server asks for is a lower bound. [RetryAfterJitter] adds a random delay to it.
//
// # Whether to retry
//
// Delays spread the retries of an outage but do not reduce their number: with four attempts per
// request, a server that is down receives four times its load. A [Budget] limits retries to a
// fraction of the requests, as recommended in "Handling Overload" and "Addressing Cascading
// Failures" in Site Reliability Engineering, O'Reilly 2016.
//
// # The first request
//
// A Policy does not help with jobs that all start at noon, because nothing has failed yet: an
// [Offset] spreads their start times.
//
// # Other libraries
//
// Package backoff/cenkalti converts between a Policy and the BackOff interface of
// github.com/cenkalti/backoff/v4, in both directions.
package backoff
