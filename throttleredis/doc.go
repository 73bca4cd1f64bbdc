// Package throttleredis provides the limiters of package throttle for limits that several
// processes share. Their state is stored in Redis or Valkey, and each decision is one
// atomic script.
//
//	store := &throttleredis.Store{Client: redis.NewClient(&redis.Options{Addr: "localhost:6379"})}
//	limit := store.TokenBucket(throttle.Limit{Name: "search", Count: 100, Per: time.Second})
//
// This is a limit of each Claim.Key, in all processes together. The Name, with the algorithm and
// the period, identifies the limit in Redis: limits that are equal in them are one limit. If its
// other numbers change, the units that were taken stay taken, also while some processes have the
// old numbers. To begin unused, change the Name, for example to "search v2". A limit without a
// Name is identified by all its numbers; a Store panics if a second one has the same.
//
// A limit is configured by the same value as the limiter in memory and makes the same
// decisions, unit for unit: see TestLimiters_decideAsInMemory. The differences, in the
// Modes [Grouped] and [Synchronous], follow from where the state is stored:
//
//   - Time is the server's clock, in whole microseconds. The clocks of the processes do not
//     matter. The Wait of a rejected claim is rounded up to whole microseconds. If the
//     server's clock steps back by less than a window, no units are restored until the clock
//     has caught up. If it steps back further, time continues from the latest reading at
//     which a claim was granted. No unit is restored twice. A window is the time in which all
//     units are restored: Per, the time to fill a bucket, MaxAge, two Per for a
//     SlidingCounter, and twice MaxDuration for a Ban.
//   - A key whose state equals that of an unused key expires. Therefore every key begins with
//     all of its units, and periods count from the Unix epoch rather than from a creation.
//   - A limit with a Name keeps what was taken when its numbers change, as SetLimit does in
//     memory. A TickQueue, a WarmUp, a Bursty, and a limit with another period or other Parts or in
//     Mode Eventual begins unused.
//   - Reserve can fail. If its error matches [ErrUncertain], the units may have been taken.
//
// # Memory of Redis
//
// Clients that choose keys, such as addresses or tokens that are not validated, can fill the memory
// of Redis. Set maxmemory, and the policy noeviction: a Redis without memory then rejects claims,
// and a [Fallback] with Processes grants the share of its process. With allkeys-lru and the other
// policies that evict keys, a client that has exhausted its limit can invent keys until its own is
// evicted, and begins with all units.
//
// [AllOf] and [Store.Ban] ask several limits for one key in one round trip, and take no
// units unless all limits grant the claim. throttle.NewSoftLimit, throttle.Shadow and
// throttle.AllOf wrap limiters of this package as they wrap limiters in memory.
//
// # Storage
//
// Keys have the form prefix:{tag}:id. The tag is Claim.Key, or a hash of it if the key is
// longer than 64 bytes, begins with "~", or contains braces, spaces or control characters.
// The tag alone determines the slot in a cluster. The id has 11 characters. Each algorithm is a
// script in the folder lua:
//
//	method             script          value                          bytes   kept until
//	TokenBucket        tokenbucket     reading, ticks taken, rate     120     full, twice that at most
//	RefillBucket       refillbucket    tick, units taken, reading     120     full
//	LeakyBucket        leakybucket     as TokenBucket, two bookings   136     full, and all claims may be used
//	TickQueue          tickqueue       tick, reading                  104     all claims that wait are served
//	Nginx              nginx           readings, excess, a booking    120     empty
//	FixedWindow,       fixedwindow     begin, end, units, reading     120     the end of the window
//	  PermitsPerPeriod
//	SlidingCounter     slidingcounter  number, two counts, reading    120     the end of the next window
//	WarmUp, Bursty     warmup          four doubles                   136     no idle unit is missing
//	SlidingLog,        slidinglog      hash: blocks of 16 stamps      19 for  twice Per
//	  SlidingCounter                     with units, and sums         each
//	  with Parts
//	Concurrency        concurrency     sorted set: a member for each  113     MaxAge
//	                                     power of two in the units    for
//	                                     of a claim                   each
//	Ban                ban             end, length, ring of readings  7 for   ForgetAfter
//	                                                                  each
//
// Bytes are the result of MEMORY USAGE for a Claim.Key of up to 25 bytes under the prefix
// "heed", and include the key and its entry in the table of keys: see
// TestLimiter_keysAreSmall. A window sets its expiry once; a bucket moves its expiry when
// half of it is over.
//
// A call of a SlidingLog or a Concurrency limiter takes O(log n) time for n entries or
// claims, and so does a settlement of any entry: see bench/redislarge.
//
// The server needs the time of a script that calls GET, SET and TIME, plus one or two
// microseconds. The client allocates 7 times per decision.
//
// If many goroutines make decisions at the same time, a Store whose Client is the
// AutoPipeline of a client sends their claims together and makes more than twice as many
// decisions per second. An AutoPipeline ignores the deadlines of contexts; a Fallback
// enforces its own.
//
// A [Fallback] around a limit continues without Redis and bounds the time that a call waits
// for Redis:
//
//	limit := &throttleredis.Fallback{Limiter: store.TokenBucket(throttle.PerSecond(100)), Processes: 4}
//
// Claims that are made during a round trip travel together in the next one: see [Grouped]. In Mode
// [Leased] a process takes units before they are needed, and decides on most claims in memory.
//
// In Mode [Eventual] the limiters of a Store decide in memory and take no round trip. Hosts
// exchange what they take in the background, also between regions that have a Redis each,
// and exceed a limit by no more than a formula states: see docs/regions.md.
//
// An [Exchange] shares what a server states about its limits between the processes that
// call it.
package throttleredis
