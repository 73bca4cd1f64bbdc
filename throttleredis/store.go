package throttleredis

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// A Store holds the state of limiters in Redis. Its methods create limiters. They panic if the
// configuration of the limit or the Store is invalid, or if the limit has no Name and the Store has
// one with the same numbers. The fields must not be changed after the first limiter was created, and
// a Store must not be copied.
type Store struct {
	// Client is a Client, Ring, ClusterClient or failover client of go-redis, or the
	// AutoPipeline of one. It must be set.
	Client redis.Scripter

	// Prefix begins all keys, for programs that share a Redis. It must not contain braces.
	// Empty means "heed".
	Prefix string

	// Timeout is the maximum duration of Reserve and Report. The client must
	// support deadlines: set ContextTimeoutEnabled in its options. Zero means that only ctx
	// and the options of the client limit the duration.
	Timeout time.Duration

	// Clock is the clock that Decision.At is read from. Decisions use the clock of the
	// server. Nil means the system clock.
	Clock throttle.Clock

	// OnOperation is called after each call to Redis, for metrics: with its name, its duration
	// and its error. The name is "reserve" or "settle", or in Mode Eventual "publish", "fetch"
	// or "ping". In Mode Grouped it is called for each claim, also if several have travelled
	// together, and the duration includes the wait for the round trip before. It must not block, and
	// may be called concurrently. Nil means no calls.
	OnOperation func(name string, took time.Duration, err error)

	// Mode determines where limiters decide: in Redis, or in memory. Zero means Grouped. In Mode
	// Leased, call Close before the program ends, so that other processes get the units that it has not
	// used. In Mode Eventual, keep each Limiter as long as its limit is to hold: what is known of a limit
	// is dropped when the program refers to no Limiter of it. Call Close when none is needed any more.
	Mode Mode

	// Eventual holds the options of Mode Eventual. The zero value means the defaults.
	Eventual EventualOptions

	// useLocalClock makes scripts use the local reading of the clock, in tests.
	useLocalClock bool
	serverClock   func() time.Time // the clock that scripts then use; nil: the reading of the claim

	unnamed       sync.Map // ids of the limits without a name
	eventual      eventualState
	separatesKeys atomic.Bool // the server is one of a cluster: see groups

	leasesMu sync.Mutex
	leases   []weak.Pointer[leases] // of Mode Leased, for Close
}

// Validate returns an error that describes how to correct s, or nil if s is valid.
func (s *Store) Validate() error {
	_, processes := s.Client.(processor) // and obeys redis.Cmder.NoRetry
	switch {
	case isNil(s.Client):
		return fmt.Errorf("throttleredis: store %q: Client is nil: set it to a client of go-redis", s.Prefix)
	case strings.ContainsAny(s.Prefix, "{}"):
		return fmt.Errorf("throttleredis: store %q: Prefix has a brace, which would decide on the slot of a cluster: leave it out", s.Prefix)
	case s.Timeout < 0:
		return fmt.Errorf("throttleredis: store %q: Timeout is %v: it must not be negative", s.Prefix, s.Timeout)
	case s.Timeout > 0 && ignoresDeadlines(s.Client):
		return fmt.Errorf("throttleredis: store %q: Timeout is %v, but the client does not look at deadlines: set ContextTimeoutEnabled in its options, and for an AutoPipeline no Timeout but that of a Fallback", s.Prefix, s.Timeout)
	case s.Mode > Eventual:
		return fmt.Errorf("throttleredis: store %q: Mode is %d: take one of the constants", s.Prefix, s.Mode)
	case s.Mode == Leased && !processes:
		return fmt.Errorf("throttleredis: store %q: Mode Leased: a %T may repeat commands: take a Client, ClusterClient, Ring or failover client", s.Prefix, s.Client)
	case s.Mode == Eventual:
		return s.validateEventual()
	}
	return nil
}

// isNil reports whether c is nil or a nil pointer, as of a function that has failed.
func isNil(c any) bool {
	v := reflect.ValueOf(c)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// ignoresDeadlines reports whether a client is known to ignore the deadlines of contexts.
func ignoresDeadlines(c redis.Scripter) bool {
	switch c := c.(type) {
	case *redis.AutoPipeliner:
		return true
	case *redis.Client:
		return !c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return !c.Options().ContextTimeoutEnabled
	case *redis.Ring:
		return !c.Options().ContextTimeoutEnabled
	}
	return false
}

func (s *Store) prefix() string { return cmp.Or(s.Prefix, "heed") }

// Limiter returns the limiter of a configuration that is known at run time, such as the Spec of a
// rules.Limit, under a name such as its ID. The name replaces that of spec and identifies the limit
// in Redis. It returns an error where the method of that kind of limit would panic, and for a type
// that the Store does not have: it has throttle.Limit, and the Config types of the packages throttle
// and warmup that other methods of Store accept.
func (s *Store) Limiter(name string, spec interface{ Validate() error }) (*Limiter, error) {
	l := limit{err: fmt.Errorf("throttleredis: limit %q: a %T is not kept in Redis", name, spec)}
	switch v := spec.(type) {
	case throttle.Limit:
		v.Name = name
		l = tokenBucket(v)
	case throttle.RefillBucketConfig:
		v.Limit.Name = name
		l = refillBucket(v)
	case throttle.LeakyBucketConfig:
		v.Limit.Name = name
		l = leakyBucket(v)
	case throttle.TickQueueConfig:
		v.Limit.Name = name
		l = tickQueue(v)
	case throttle.NginxConfig:
		v.Name = name
		l = nginx(v)
	case throttle.FixedWindowConfig:
		v.Name = name
		l = fixedWindow(v)
	case throttle.SlidingLogConfig:
		v.Limit.Name = name
		l = slidingLog(v)
	case throttle.SlidingCounterConfig:
		v.Limit.Name = name
		l = slidingCounter(v)
	case throttle.ConcurrencyConfig:
		v.Name = name
		l = concurrency(v)
	case warmup.Config:
		v.Limit.Name = name
		l = warmUp(v)
	case warmup.BurstyConfig:
		v.Limit.Name = name
		l = bursty(v)
	}
	return s.newLimiter(l)
}
