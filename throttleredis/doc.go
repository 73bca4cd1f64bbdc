// Package throttleredis has the limiters of package throttle for quotas that several
// processes share: their state is in Redis or Valkey, and each decision is one script
// there, which nothing can interrupt.
//
//	store := &throttleredis.Store{Client: redis.NewClient(&redis.Options{Addr: "localhost:6379"})}
//	limit := store.TokenBucket(throttle.PerSecond(100)) // of each Claim.Key, in all processes together
//
// A limit is configured by the same value as the one in memory, and decides the same, unit
// for unit: see TestLimiters_decideAsInMemory. What differs follows from where the state is:
//
//   - Time is the server's, in whole microseconds; the clocks of the processes do not matter.
//     Waits of refusals are rounded up to those. If the server's clock steps back by less than
//     a window, nothing comes back until it has caught up. If it steps back further, time goes
//     on from the latest reading granted at. No unit comes back twice. A window is what all
//     units take to come back: Per, the time to fill a bucket, MaxAge, two Per for a
//     SlidingCounter, and the longest sentence, twice, for a Penalty.
//   - A key that is as if it had never been used vanishes by itself. So every key begins
//     full, and periods count from the Unix epoch rather than from a creation.
//   - A limit that was changed is another one, and begins unused: its id is part of the key.
//   - Reserve can fail. An error that matches [ErrUncertain] may have taken its units.
//
// Several limits of one key are asked in one round trip by [AllOf] and [Store.Ban], which
// take nothing unless all grant. What lends, warns or finds a rate goes around them from
// outside: throttle.Borrowing, Soft, Shadow, Adaptive.
//
// # What is stored
//
// Keys are prefix:{tag}:id, where the tag is Claim.Key, or a hash of it if it is long or
// cannot be read, and alone decides on the slot of a cluster. An id is 11 characters, for
// the algorithm and all numbers of a limit. Each algorithm is a script in the folder lua:
//
//	method             script          value                          bytes   kept until
//	TokenBucket        tokenbucket     reading, ticks taken           120     full, twice that at most
//	RefillBucket       refillbucket    tick, units taken, reading     120     full
//	LeakyBucket        leakybucket     as TokenBucket, two places     120     full, and all have acted
//	TickQueue          tickqueue       tick, reading                  104     all have been served
//	Nginx              nginx           readings, excess, a place      120     empty
//	FixedWindow,       fixedwindow     begin, end, units, reading     120     the end of the window
//	  PermitsPerPeriod
//	SlidingCounter     slidingcounter  number, two counts, reading    120     the end of the next window
//	WarmUp, Bursty     warmup          four doubles                   136     cold, or all is saved
//	SlidingLog,        slidinglog      hash: blocks of 16 stamps      19 for  twice Per
//	  SubWindows                         with units, and sums         each
//	Concurrency           inflight        sorted set: a member for each  113     MaxAge
//	                                     power of two in the units    for
//	                                     of a claim                   each
//	Penalty            penalty         end, length, readings          8 for   all is forgiven
//	                                                                  each
//
// Bytes are those of MEMORY USAGE for a Claim.Key of up to 25 bytes under the prefix "heed",
// the key and its place in the table included: see TestLimiter_keysAreSmall. A window sets
// its expiry once; a bucket moves it when half of it is over.
//
// A call for a SlidingLog or an Concurrency takes O(log n) for n entries or claims, and so does a
// settlement of any entry: see bench/redislarge.
//
// The server needs what a plain GET, SET and TIME in a script need, and a microsecond or two;
// the client allocates 7 times, one less than for the answer of an empty script.
//
// Where many goroutines decide at a time, a Store whose Client is the AutoPipeline of a client
// sends their claims together, and makes more than twice as many decisions. It does not look
// at deadlines; a Fallback keeps its own.
//
// A [Fallback] around a limit goes on without Redis, and bounds what it costs to ask:
//
//	limit := &throttleredis.Fallback{Limiter: store.TokenBucket(throttle.PerSecond(100)), Processes: 4}
//
// An [Exchange] shares what an API states about its limits between processes that call it.
package throttleredis
