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

// Source is a limiter that looks up the limit of each key in a database, an API or a file of
// accounts. It remembers each limit for TTL, and the first claim after that looks it up again.
//
//	claim ──▶ known and fresh ──────────────────────────────────▶ token bucket of the key
//	      ├─▶ known and expired ───┬─ first claim: Lookup ───────▶ its limit is changed
//	      │                        └─ all others ────────────────▶ the old limit
//	      └─▶ not known ───────────┬─ first claim: Lookup ───────▶ a new bucket, full
//	                               └─ all others: wait for it
//
// A key is looked up by one claim at a time, in the goroutine of that claim and for no longer than
// its context. If that context ends early, another claim of the key repeats the lookup. Source
// starts no goroutines. A key that was looked up once keeps its limit while Lookup fails, however
// long that lasts.
//
// Keys often come from clients, which can invent them. A key without a limit is therefore limited
// by Default or, if there is no Default, rejected:
//
//	result of Lookup, or why it was not called         decision without Default       Policy
//	ErrNoLimit                                         rejected, Wait is Forever      "no limit"
//	MaxLookups or MaxKeys is reached                   rejected, Wait is 100 ms       "lookup busy"
//	another error, while other lookups succeed         rejected, Wait is Forever      "lookup failed"
//	another error, and none has succeeded for 10 s     the error: the store is down
//
// ErrorWithoutLimit turns the first three into errors too. The caller decides what an error means:
// a limiter of throttle.NewFallback asks its Secondary, a throttlehttp.Middleware follows its FailClosed, and a
// heed.Transport returns the error.
//
// A limit with a Count of 0 rejects all claims of its key, with the Policy "blocked".
//
// When a limit changes, the bucket keeps its units, including fractions, up to the new burst: see
// throttle.NewTokenBucket. It also keeps them while the key is unlimited or blocked.
//
// Invariant: at most MaxLookups lookups are running, one per key, and at most MaxKeys keys are
// remembered. Within any span a key is granted at most what the largest limit that applied to it
// allows.
//
// While MaxLookups lookups are running, claims wait up to 100 ms for one to end: first those of keys that
// have had a limit before, then, without Default, up to 4 * MaxLookups claims of other keys. So keys that
// clients invent delay the lookups of known keys by less than one lookup.
//
// Limitations: if more than MaxLookups new keys arrive at the same time, the claims of the others
// are decided by Default, with Decision.Degraded set, and the units that they take stay taken when
// the limit of the key is known; without Default those that cannot wait are rejected. A Source
// does not know which new keys its store knows: after a restart invented keys can delay all.
//
// Lookup must be set, and fields must not be changed after the first claim. A Source must not be
// copied.
type Source struct {
	// Lookup returns the limit of a key. It returns ErrNoLimit if the key has none, and
	// ErrUnlimited if all claims of the key are granted. A limit with a Count of 0 rejects all
	// claims of the key, also with a Default. Any other error is a failure, and so is a limit that
	// is not valid otherwise. Lookup is called by several goroutines at the same time and must
	// return when ctx ends. It should return ErrNoLimit, not the error of the database, for keys
	// that the database rejects.
	Lookup func(ctx context.Context, key string) (throttle.Limit, error)

	// Default is the limit of each key that has no limit of its own or cannot be looked up. The
	// zero Limit means that claims of these keys are rejected.
	Default throttle.Limit

	// ErrorWithoutLimit makes Reserve return an error (ErrNoLimit, ErrBusy or that of Lookup)
	// where it would reject a claim because its key has no limit. It is for a Source that is the
	// Primary of throttle.NewFallback. Inside a throttlehttp.Middleware whose FailClosed is false it admits
	// invented keys without limit. It has no effect with a Default. False means that such claims
	// are rejected.
	ErrorWithoutLimit bool

	// TTL is how long a limit is remembered. Zero or a negative value means 1 minute.
	TTL time.Duration

	// MissingTTL is how long it is remembered that a key has no limit. Zero or a negative value
	// means 10 s.
	MissingTTL time.Duration

	// FailedTTL is the time until a failed lookup is repeated. Zero or a negative value means 1 s.
	FailedTTL time.Duration

	// Timeout is the maximum duration of one lookup. Zero or a negative value means 1 s.
	Timeout time.Duration

	// MaxLookups is the maximum number of lookups at the same time. Zero or a negative value means
	// 16. Choose it so that invented keys, each of which is looked up, do not overload the store.
	MaxLookups int

	// MaxKeys is the maximum number of remembered keys. All other keys share one bucket with
	// Default, or are rejected without Default. Zero means 65,536.
	MaxKeys int

	// OnError is called for each failed lookup, except those whose claim was canceled. It must
	// not block. Nil means no call.
	OnError func(key string, err error)

	// Clock is the clock of claims without a time. Nil means the system clock.
	Clock throttle.Clock

	// Rand returns a number in [0, 1) and is called by several goroutines at the same time. It
	// shortens each TTL by up to a fifth, so that keys that were looked up together expire at
	// different times. Nil means rand.Float64.
	Rand func() float64

	once       sync.Once
	clock      throttle.Clock
	keys       keyed.Limiter
	slots      slots
	known      keySet       // keys that have had a limit
	generation atomic.Int64 // records of an earlier generation must be looked up again

	// lastSuccess is the time of the last successful lookup in Unix nanoseconds. Zero means never.
	lastSuccess atomic.Int64
}

// Reserve implements throttle.Limiter. It may do I/O, bounded by ctx and Timeout.
func (s *Source) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	s.once.Do(s.setup)
	if c.DryRun {
		ctx = context.WithValue(ctx, mayLookUp{}, true)
	}
	return s.keys.Reserve(ctx, c)
}

// mayLookUp is the key of the context of dry runs by callers of a Source.
type mayLookUp struct{}

// Report implements throttle.Limiter.
func (s *Source) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	s.keys.Report(ctx, c, d, f)
}

// Traits implements throttle.Limiter. It panics if there is no Lookup.
func (s *Source) Traits() throttle.Traits {
	s.once.Do(s.setup)
	return throttle.Traits{EndsAtResponse: true}
}

// Len returns the number of remembered keys.
func (s *Source) Len() int { return s.keys.Len() }

// Refresh makes each key look up its limit again with its next claim.
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
		s.keys.Overflow = throttle.WithClock(throttle.NewTokenBucket(s.Default), s.Clock)
	}
}

// newKeyLimiter returns the limiter of a key without a record. It copies key, which may be part of
// a larger string.
func (s *Source) newKeyLimiter(key string) throttle.Limiter {
	return &keyLimiter{source: s, key: strings.Clone(key)}
}

// overflow decides for the keys beyond MaxKeys if there is no Default.
type overflow struct{ source *Source }

func (o overflow) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	return o.source.decideWithoutLimit(c.Now, policyBusy, ErrBusy)
}

// Report implements throttle.Limiter.
func (overflow) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (overflow) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// The policies of claims that are rejected because their key has no limit.
const (
	policyNoLimit = "no limit"
	policyBusy    = "lookup busy"
	policyFailed  = "lookup failed"
)

// busyWait is how long a claim waits for a lookup while MaxLookups others are running, and the wait
// that its rejection states. It is longer than most lookups take.
const busyWait = 100 * time.Millisecond

// decideWithoutLimit decides a claim of a key without a limit. It rejects the claim, or returns
// err if ErrorWithoutLimit is set.
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

// successLasts is how long after a successful lookup the store counts as available. While it is
// available, a failed lookup is attributed to its key.
const successLasts = 10 * time.Second

// recordSuccess records the time of a successful lookup.
func (s *Source) recordSuccess() { s.lastSuccess.Store(s.clock.Now().UnixNano()) }

// available reports whether a lookup succeeded within the last 10 s.
func (s *Source) available() bool {
	at := s.lastSuccess.Load()
	return at != 0 && s.clock.Now().UnixNano()-at < int64(successLasts)
}

func (s *Source) hasDefault() bool { return s.Default != (throttle.Limit{}) }

// jitteredTTL returns how long to remember a result: d, or the default or if d is not positive,
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

func (s *Source) maxLookups() int {
	if s.MaxLookups <= 0 {
		return 16
	}
	return s.MaxLookups
}

// maxKeys is the number of keys that are known to have a limit, at least.
func (s *Source) maxKeys() int {
	if s.MaxKeys <= 0 {
		return 1 << 16
	}
	return s.MaxKeys
}

func (s *Source) timeout() time.Duration {
	if s.Timeout <= 0 {
		return time.Second
	}
	return s.Timeout
}
