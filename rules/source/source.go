package source

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

var (
	// ErrNoLimit is returned by Source.Lookup for a key without a limit of its own, and
	// for a key that cannot have one, such as one that is not well-formed. It is the
	// error of Source.Reserve for such a key if there is no Default and ErrorWithoutLimit
	// is set.
	ErrNoLimit = errors.New("source: the key has no limit")

	// ErrUnlimited is returned by Source.Lookup for a key that is granted everything.
	ErrUnlimited = errors.New("source: the key is unlimited")

	// ErrBusy is the error of Source.Reserve for a key that cannot be looked up now,
	// because MaxLookups lookups are running or MaxKeys keys are remembered, if there is
	// no Default and ErrorWithoutLimit is set.
	ErrBusy = errors.New("source: too many limits are looked up")
)

// Source is a limiter whose limits per key come from elsewhere: a database, an API, a
// file of accounts. It remembers each limit for a while, and the first claim after that
// looks it up again.
//
//	claim ──▶ known and fresh ──────────────────────────────────▶ token bucket of the key
//	      ├─▶ known and old ───────┬─ first to notice: Lookup ───▶ its limit is changed
//	      │                        └─ all others ────────────────▶ the old limit
//	      └─▶ not known ───────────┬─ first: Lookup ─────────────▶ a new bucket, full
//	                               └─ all others: wait for it
//
// A key is looked up by one claim at a time, in the goroutine of that claim and for no
// longer than its context. If that context ends early, another claim of the key takes
// over; no goroutine is left behind. A key that was looked up once keeps its limit while
// Lookup fails, however long that lasts.
//
// Keys often come from clients, which can invent them. So a key without a limit is under
// Default or, if there is no Default, rejected:
//
//	what Lookup returned, or why it was not called     decision without Default       Policy
//	ErrNoLimit                                         rejected, Wait is Forever      "no limit"
//	MaxLookups or MaxKeys is reached                   rejected, Wait is 100 ms       "lookup busy"
//	another error, while other lookups succeed         rejected, Wait is Forever      "lookup failed"
//	another error, and none has succeeded for 10 s     the error: the store is down
//
// ErrorWithoutLimit turns the first three into errors too. What an error means is decided
// by the caller: a throttle.Fallback asks its Secondary, a throttlehttp.Middleware obeys
// its FailClosed, and a heed.Transport returns it.
//
// When a limit changes, the units in the bucket stay, down to the fraction, as far as
// the new burst has room: see throttle.TokenBucket.SetLimit. They also stay while the key
// is unlimited.
//
// Invariant: no more than MaxLookups lookups are running, one per key, and no more than
// MaxKeys keys are remembered. Within any span a key is granted what the largest limit
// that was in force for it allows.
//
// Limitation: more than MaxLookups new keys at a time are not kept waiting. Those that
// cannot be looked up immediately are under Default, Degraded, and keep what they used
// when their own limit is known; without Default they are rejected.
//
// Lookup must be set, and no field may change once the Source is in use. A Source must
// not be copied.
type Source struct {
	// Lookup returns the limit of a key: ErrNoLimit if it has none, ErrUnlimited if it is
	// granted everything. Any other error is a failure, and so is a limit that is not
	// valid. Lookup is called by several goroutines at a time and must end when ctx does.
	// It should return ErrNoLimit, not the error of the database, for keys that the
	// database rejects.
	Lookup func(ctx context.Context, key string) (throttle.Limit, error)

	// Default is the limit of each key that has none of its own or cannot be looked up.
	// The zero Limit rejects these claims.
	Default throttle.Limit

	// ErrorWithoutLimit makes Reserve return an error, ErrNoLimit, ErrBusy or that of
	// Lookup, where it would reject a claim for want of a limit. It is for a Source inside
	// a throttle.Fallback. Beneath a throttlehttp.Middleware whose FailClosed is false it
	// serves invented keys without limit. It has no effect with a Default. False rejects.
	ErrorWithoutLimit bool

	TTL        time.Duration // how long a limit is remembered; 0 means a minute
	MissingTTL time.Duration // how long it is remembered that a key has none; 0 means 10 s
	FailedTTL  time.Duration // time until a failed lookup is repeated; 0 means 1 s
	Timeout    time.Duration // of one lookup; 0 means 1 s

	MaxLookups int // lookups at a time; 0 means 16
	MaxKeys    int // remembered keys; all others share one Default; 0 means 65,536

	// OnError is called for each failed lookup, except those whose claim was cancelled.
	// It must not block. Nil means none.
	OnError func(key string, err error)

	Clock throttle.Clock // nil means the system clock

	// Rand returns a number in [0, 1) and is called by many goroutines at a time. What was
	// learned is remembered for up to a fifth less, by chance, so that keys that were
	// looked up together expire apart. Nil means rand.Float64.
	Rand func() float64

	once        sync.Once
	clock       throttle.Clock
	keys        keyed.Limiter
	lookups     atomic.Int64
	generation  atomic.Int64 // what was learned in another round has to be asked for again
	lastSuccess atomic.Int64 // when a lookup last succeeded, in Unix nanoseconds; 0: never
}

// Reserve implements throttle.Limiter. It may do I/O, bounded by ctx and Timeout.
func (s *Source) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	s.once.Do(s.setup)
	return s.keys.Reserve(ctx, c)
}

// Cancel implements throttle.Limiter.
func (s *Source) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	s.keys.Cancel(ctx, c, d)
}

// Observe implements throttle.Observer.
func (s *Source) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	s.keys.Observe(ctx, c, d, f)
}

// NonBlocking implements throttle.NonBlocking: it looks limits up elsewhere.
func (s *Source) NonBlocking() bool { return false }

// Len returns the number of remembered keys.
func (s *Source) Len() int { return s.keys.Len() }

// Refresh asks for the limit of each key again when next it is needed.
func (s *Source) Refresh() { s.generation.Add(1) }

func (s *Source) setup() {
	if s.Lookup == nil {
		panic("source: Lookup is nil")
	}
	s.clock = throttle.ClockOr(s.Clock)
	s.keys = keyed.Limiter{
		New:      s.newKeyLimiter,
		Max:      s.MaxKeys,
		Overflow: overflow{s},
		Clock:    s.Clock,
	}
	if s.hasDefault() {
		s.keys.Overflow = throttle.NewTokenBucket(s.Default, s.Clock)
	}
}

// newKeyLimiter returns what is known of a key: nothing. The key may be part of something large.
func (s *Source) newKeyLimiter(key string) throttle.Limiter {
	return &keyLimiter{source: s, key: strings.Clone(key)}
}

// overflow decides for the keys beyond MaxKeys if there is no Default.
type overflow struct{ source *Source }

func (o overflow) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	return o.source.decideWithoutLimit(c.Now, policyBusy, ErrBusy)
}

func (overflow) Cancel(context.Context, throttle.Claim, throttle.Decision) {}

// The policies of claims that are rejected for want of a limit.
const (
	policyNoLimit = "no limit"
	policyBusy    = "lookup busy"
	policyFailed  = "lookup failed"
)

// busyWait is when to repeat a claim whose key could not be looked up: later than most
// databases take for the lookups that were in its way.
const busyWait = 100 * time.Millisecond

// decideWithoutLimit decides a claim that has no limit to be decided by: it rejects the claim, or
// returns err if ErrorWithoutLimit is set.
func (s *Source) decideWithoutLimit(now time.Time, policy string, err error) (throttle.Decision, error) {
	if s.ErrorWithoutLimit {
		return throttle.Decision{}, err
	}
	if now.IsZero() {
		now = s.clock.Now()
	}
	d := throttle.Decision{At: now, Policy: policy, Wait: throttle.Forever, Degraded: policy != policyNoLimit}
	if policy == policyBusy {
		d.Wait = busyWait
	}
	return d, nil
}

// successLasts is how long after a successful lookup the store counts as available, so
// that a lookup that fails is blamed on its key.
const successLasts = 10 * time.Second

// recordSuccess notes that a lookup succeeded.
func (s *Source) recordSuccess() { s.lastSuccess.Store(s.clock.Now().UnixNano()) }

// available reports whether a lookup succeeded within the last 10 s.
func (s *Source) available() bool {
	at := s.lastSuccess.Load()
	return at != 0 && s.clock.Now().UnixNano()-at < int64(successLasts)
}

func (s *Source) hasDefault() bool { return s.Default != (throttle.Limit{}) }

// jitteredTTL returns how long to remember something: d, or the default or if d is not set,
// less up to a fifth.
func (s *Source) jitteredTTL(d, or time.Duration) time.Duration {
	if d <= 0 {
		d = or
	}
	draw := s.Rand
	if draw == nil {
		draw = rand.Float64
	}
	return d - time.Duration(draw()*float64(d/5))
}

// beginLookup counts a lookup, unless there are too many.
func (s *Source) beginLookup() bool {
	limit := int64(s.MaxLookups)
	if limit <= 0 {
		limit = 16
	}
	if s.lookups.Add(1) <= limit {
		return true
	}
	s.lookups.Add(-1)
	return false
}

func (s *Source) timeout() time.Duration {
	if s.Timeout <= 0 {
		return time.Second
	}
	return s.Timeout
}
