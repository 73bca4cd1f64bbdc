// Package rate has the API of golang.org/x/time/rate: a token bucket with the methods
// Allow, Reserve and Wait.
//
// Use it in a program that is written for x/time/rate, or that needs one limit and no more.
// A program that uses x/time/rate compiles with this package after a change of the import
// path. [New] gives the same methods to any limiter of package throttle, such as one over
// Redis or one that counts in windows. Where a call needs several limits together, or
// priorities, use package throttle/queue; for HTTP requests use heed.Transport.
//
// # Differences from x/time/rate
//
// Waiting:
//
//   - A Wait takes its units when it ends, not when it begins. If ctx ends first, no units
//     are taken and the callers behind it continue earlier. In x/time/rate the units are
//     reserved, and partly lost if there are later reservations.
//   - Callers of Wait are served in the order in which they arrived. Allow returns false while
//     one of them waits. A Reserve goes before all of them: use either Reserve or Wait.
//   - SetLimit and SetBurst also apply to callers that wait already.
//   - If ctx ends, Wait returns context.Cause(ctx). In x/time/rate it returns ctx.Err().
//   - An error of Wait, and [Reservation.Err], name the limit that rejected the claim and say
//     when to ask again, see throttle.RejectedError. If the deadline of ctx is too early, Wait
//     fails immediately and the error matches context.DeadlineExceeded.
//
// Time and rounding:
//
//   - A time that is older than that of an earlier grant or change of the limit counts as that
//     time. x/time/rate adds the tokens of the time between twice.
//   - The arithmetic is exact, see [Limit]. A unit is granted once it is restored, and delays
//     are rounded up to a nanosecond. x/time/rate rounds delays down, and grants units that
//     are restored within the next nanosecond.
//   - A zero time.Time means the current time.
//
// Reservations:
//
//   - A second Cancel does nothing. In x/time/rate it returns the tokens again.
//   - A Cancel after the units could be used returns those that time has not yet restored. In
//     x/time/rate it returns none. So do not call Cancel after the units were used.
//   - A Cancel after a change of the limit or burst returns nothing. x/time/rate returns
//     tokens, after a lower burst also those that the change has removed.
//   - A Cancel after another reservation filled the gap of a canceled one returns what the
//     limit allows. x/time/rate may then return 15 tokens for 1.
//
// Values:
//
//   - A negative n is rejected with throttle.ErrCost. In x/time/rate it adds tokens.
//   - A claim that can never be granted, such as one with a limit of 0 and no tokens left, is
//     rejected immediately. x/time/rate grants a reservation with a delay of 292 years, and
//     its Wait blocks for that time.
//   - A NaN limit counts as 0, and +Inf as [Inf].
package rate
