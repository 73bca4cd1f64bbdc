// Package throttleredis has the limiters of package throttle for quotas that several
// processes share: their state is in Redis or Valkey, and each decision is one script
// there, which nothing can interrupt.
//
//	store := &throttleredis.Store{Client: redis.NewClient(&redis.Options{Addr: "localhost:6379"})}
//	limit := store.TokenBucket(throttle.PerSecond(100)) // of each Claim.Key, in all processes together
//
// A limit is configured by the same value as the one in memory, and decides the same;
// what differs follows from where the state is.
// Time is that of the server, in whole microseconds, so that the clocks of the processes
// do not matter; waits are rounded up to those. A key that is as if it had never been
// used vanishes by itself. And Reserve can fail.
//
// A [Fallback] around a limit goes on without Redis, and bounds what it costs to ask:
//
//	limit := &throttleredis.Fallback{Limiter: store.TokenBucket(throttle.PerSecond(100)), Processes: 4}
package throttleredis
