package rules

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

var (
	// ErrNoLimit is what Source.Lookup returns for a key that has no limit of its
	// own: it is under the Default. It is also the error of a claim where there is
	// no Default.
	ErrNoLimit = errors.New("rules: the key has no limit: set Source.Default for such keys")

	// ErrUnlimited is what Source.Lookup returns for a key that everything is granted to.
	ErrUnlimited = errors.New("rules: the key is unlimited")

	// ErrBusy is the error of a claim whose limit cannot be looked up now, because too
	// many others are being looked up or have their limits remembered, where there is no
	// Default.
	ErrBusy = errors.New("rules: too many limits are looked up: set Source.Default, or raise MaxLookups or MaxKeys")
)

// A Source limits each key as somebody else says: a database, an API, a file of
// accounts. What that says is remembered for a while, and asked again by the claim that
// comes after.
//
//	claim ──▶ known, and not for too long ──────────────────────▶ token bucket of the key
//	      ├─▶ known for too long ──┬─ first to notice: Lookup ───▶ its limit is changed
//	      │                        └─ all others ────────────────▶ as it is
//	      └─▶ not known ───────────┬─ first: Lookup ─────────────▶ a new bucket, full
//	                               └─ all others: wait for it
//
// A key is looked up by one claim at a time, in the goroutine of that claim and for no
// longer than its context. If that ends early another claim of the key takes over; no
// goroutine is left behind. What cannot be looked up stays as it was, however long
// that lasts: an outage of the database is none of ours.
//
// When a limit changes, the units in the bucket stay, down to the fraction, as far as
// the new burst has room: see throttle.TokenBucket.SetLimit. So they do while the key
// is unlimited.
//
// Invariant: no more than MaxLookups lookups are under way, one per key, and no more
// than MaxKeys keys are remembered. Within any span a key is granted what the largest
// limit that was in force for it allows.
//
// The odd case is a crowd of keys that nobody has seen before, more than MaxLookups at
// a time. They are not kept waiting: those who cannot be looked up at once are under
// the Default until they can, and keep what they used when they have a limit of their
// own. Decisions by the Default that should not be are Degraded.
//
// Lookup must be set, and no field may change once it is in use. A Source must not be
// copied.
type Source struct {
	// Lookup returns the limit of a key: ErrNoLimit if it has none, ErrUnlimited if
	// all of it is granted; any other error is a failure, and so is a limit that is
	// not valid. It is called by several goroutines at once, and must end when ctx does.
	Lookup func(ctx context.Context, key string) (throttle.Limit, error)

	// Default is the limit of keys that have none of their own, of each for itself, and
	// of those that cannot be looked up. The zero Limit: such claims get an error, so
	// that a throttle.Fallback can decide.
	Default throttle.Limit

	Keep        time.Duration // how long a limit is not asked for again; 0: a minute
	KeepMissing time.Duration // the same for a key without one; 0: 10 s
	KeepFailed  time.Duration // the same after a failure; 0: 1 s
	Timeout     time.Duration // of one lookup; 0: 1 s

	MaxLookups int // lookups at a time; 0: 16
	MaxKeys    int // keys that are remembered, those beyond share one Default; 0: 65,536

	// OnError is told of failed lookups, but not of those whose claim gave up. It must
	// not block. Nil: nobody is told.
	OnError func(key string, err error)

	Clock throttle.Clock // nil: the system clock

	// Rand draws from [0, 1), by many goroutines at once: what was learned at one
	// instant is kept for up to a fifth less, by chance, so that it is not all asked
	// for at one instant again. Nil: rand.Float64.
	Rand func() float64

	once    sync.Once
	clock   throttle.Clock
	keys    throttle.Keyed
	lookups atomic.Int64
	round   atomic.Int64 // what was learned in another round has to be asked for again
}

// Reserve implements throttle.Limiter. It may do I/O, bounded by ctx and Timeout.
func (s *Source) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	s.once.Do(s.start)
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

// Local implements throttle.Local: it looks limits up elsewhere.
func (s *Source) Local() bool { return false }

// Len returns how many keys are remembered.
func (s *Source) Len() int { return s.keys.Len() }

// Refresh asks for the limit of each key again when next it is needed.
func (s *Source) Refresh() { s.round.Add(1) }

func (s *Source) start() {
	if s.Lookup == nil {
		panic("rules: Source: Lookup is nil: it says what the limit of a key is")
	}
	s.clock = throttle.ClockOr(s.Clock)
	s.keys = throttle.Keyed{
		New:      s.account,
		Max:      s.MaxKeys,
		Overflow: blind{},
		Clock:    s.Clock,
	}
	if s.hasDefault() {
		s.keys.Overflow = throttle.NewTokenBucket(s.Default, s.Clock)
	}
}

// account returns what is known of a key: nothing. The key may be part of something large.
func (s *Source) account(key string) throttle.Limiter {
	return &account{source: s, key: strings.Clone(key)}
}

// blind decides nothing, for keys that there is no room for.
type blind struct{}

func (blind) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{}, ErrBusy
}
func (blind) Cancel(context.Context, throttle.Claim, throttle.Decision) {}

func (s *Source) hasDefault() bool { return s.Default != (throttle.Limit{}) }

// keeps returns how long to keep something: d, or as long as or says if that is not
// set, less up to a fifth.
func (s *Source) keeps(d, or time.Duration) time.Duration {
	if d <= 0 {
		d = or
	}
	draw := s.Rand
	if draw == nil {
		draw = rand.Float64
	}
	return d - time.Duration(draw()*float64(d/5))
}

// admit counts a lookup, unless there are too many.
func (s *Source) admit() bool {
	most := int64(s.MaxLookups)
	if most <= 0 {
		most = 16
	}
	if s.lookups.Add(1) <= most {
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
