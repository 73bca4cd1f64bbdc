package keyed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A BanConfig configures NewBan.
type BanConfig struct {
	// Name is returned as Decision.Policy during a ban. Empty means "ban".
	Name string

	// Rejections is the number of rejections within Within that cause a ban. It must be positive.
	Rejections int

	// Within is the span in which Rejections are counted. It must be positive.
	Within time.Duration

	// Duration is the length of the first ban. It must be positive.
	Duration time.Duration

	// MaxDuration limits the length of further bans, each of which is twice as long as the one
	// before. Zero means Duration.
	MaxDuration time.Duration

	// ForgetAfter is the time without a rejection or ban after which the state of a key is
	// reset. Zero means the longer of Within and MaxDuration.
	ForgetAfter time.Duration

	// MaxKeys is the maximum number of keys that are tracked. Zero means 65,536.
	MaxKeys int
}

// Validate returns an error that states the invalid field if s is invalid.
func (s BanConfig) Validate() error {
	switch {
	case s.Rejections <= 0:
		return fmt.Errorf("keyed: ban %q: Rejections is %d: it must be positive", s.Name, s.Rejections)
	case s.Within <= 0 || s.Duration <= 0:
		return fmt.Errorf("keyed: ban %q: Within is %v and Duration %v: they must be positive", s.Name, s.Within, s.Duration)
	case s.MaxDuration != 0 && s.MaxDuration < s.Duration:
		return fmt.Errorf("keyed: ban %q: MaxDuration is %v: it must not be less than Duration, which is %v; or 0 for Duration", s.Name, s.MaxDuration, s.Duration)
	case s.ForgetAfter != 0 && s.ForgetAfter < s.Within:
		return fmt.Errorf("keyed: ban %q: ForgetAfter is %v: it must not be less than Within, which is %v", s.Name, s.ForgetAfter, s.Within)
	case s.MaxKeys < 0:
		return fmt.Errorf("keyed: ban %q: MaxKeys is %d: it must be positive, or 0 for 65,536", s.Name, s.MaxKeys)
	}
	return nil
}

type banLimiter struct {
	throttle.Limiter
	config BanConfig
	time   ticks.Timeline

	mu   sync.Mutex
	keys keyTable[*banState]
}

type banState struct {
	tablePosition         // evictableAt is forgetAt, as when that was last checked
	rejections    []int64 // readings of the latest rejections; a ring
	oldest        int     // index of the oldest of them
	until         int64   // end of the latest ban
	duration      int64   // length of that ban; 0: none yet
	forgetAt      int64   // when the state is reset
}

// NewBan returns a limiter around l that rejects all claims of a key that keeps exceeding its
// limit. A key with Rejections rejections within Within is banned for Duration, and for twice as
// long each further time, until ForgetAfter has passed without a rejection or ban:
//
//	rejections      Rejections 3, Duration d, MaxDuration 4d
//	 │││               │││                    │││              │││
//	─┴┴┴█████──────────┴┴┴██████████──────────┴┴┴██████████████████──▶ time
//	     |-d-|             |- 2d --|             |---- 4d ----|
//
// Rejections during a ban are not counted. No more than MaxKeys keys are tracked, with
// Rejections readings each; keys that are never rejected need no memory.
//
// Limitations: if more than MaxKeys keys exceed their limits, a key whose ForgetAfter has
// passed is evicted; if there is none, new keys are not tracked and cannot be banned.
// Banned keys are not evicted, because a client could otherwise end its ban by using
// invented keys.
//
// It panics if s is invalid or l is nil.
func NewBan(l throttle.Limiter, s BanConfig) throttle.Limiter {
	if err := s.Validate(); err != nil {
		panic(err.Error() + " (NewBan)")
	}
	if l == nil {
		panic("keyed: NewBan: the limiter is nil")
	}
	s.Name = cmp.Or(s.Name, "ban")
	s.MaxDuration = max(s.MaxDuration, s.Duration)
	s.ForgetAfter = cmp.Or(s.ForgetAfter, max(s.Within, s.MaxDuration))
	s.MaxKeys = cmp.Or(s.MaxKeys, 1<<16)
	return &banLimiter{Limiter: l, config: s, time: ticks.NewTimeline()}
}

func (p *banLimiter) SetClock(c throttle.Clock) {
	p.time.SetClock(c)
	setClock(p.Limiter, c)
}

// Reserve implements throttle.Limiter. The Wait of a rejection that starts a ban includes it.
func (p *banLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	until := p.bannedUntil(c.Key)
	dryRun := until != ticks.Never && p.time.Read(c.Now) < until
	d, now, err := p.reserveInner(ctx, c, dryRun)
	if dryRun && err == nil && now >= until { // the inner limiter has seen a later reading
		d, now, err = p.reserveInner(ctx, c, false)
	}
	if err != nil {
		return throttle.Decision{}, err
	}
	if now >= until && !d.OK && !c.DryRun && !c.Waits {
		until = p.countRejection(c.Key, now)
	}
	if now < until {
		d = p.banned(d, until, now)
	}
	d.Fresh = d.Fresh && c.DryRun && p.isUnused(now)
	return d, nil
}

// reserveInner asks the inner limiter, and also returns the reading of its decision.
func (p *banLimiter) reserveInner(ctx context.Context, c throttle.Claim, dryRun bool) (throttle.Decision, int64, error) {
	c.DryRun = c.DryRun || dryRun
	d, err := p.Limiter.Reserve(ctx, c)
	if err != nil {
		return throttle.Decision{}, 0, err
	}
	return d, p.time.Read(d.At), nil
}

// banned returns the rejection of a claim during a ban until the given instant. Its Wait covers
// the ban and the Wait of d, the decision of the inner limiter.
func (p *banLimiter) banned(d throttle.Decision, until, now int64) throttle.Decision {
	left := time.Duration(ticks.Sub(until, now))
	if d.OK {
		d.Wait = 0
	}
	d.OK, d.Fresh, d.Remaining = false, false, 0
	if left > d.Wait {
		d.Wait, d.Policy = left, p.config.Name
	}
	d.ResetAfter = max(d.ResetAfter, left)
	return d
}

// bannedUntil returns the end of the latest ban of key, or ticks.Never if there was none.
func (p *banLimiter) bannedUntil(key string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o, ok := p.keys.byKey[key]; ok {
		return o.until
	}
	return ticks.Never
}

// countRejection counts a rejection of key at now, and returns the end of its latest ban.
func (p *banLimiter) countRejection(key string, now int64) (until int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, ok := p.keys.byKey[key]
	if !ok {
		if o = p.track(key, now); o == nil {
			return ticks.Never
		}
	}
	if now >= o.forgetAt {
		o.reset()
	}
	if now >= o.until && o.count(now, p.config) {
		o.duration = min(max(ticks.Mul(o.duration, 2), int64(p.config.Duration)), int64(p.config.MaxDuration))
		o.until = ticks.Add(now, o.duration)
	}
	o.forgetAt = max(o.forgetAt, ticks.Add(max(now, o.until), int64(p.config.ForgetAfter)))
	return o.until
}

// track adds the state of a key. It returns nil if none of MaxKeys others can be evicted.
func (p *banLimiter) track(key string, now int64) *banState {
	if p.keys.len() >= p.config.MaxKeys && !p.evict(now) {
		return nil
	}
	o := &banState{until: ticks.Never, forgetAt: ticks.Never}
	p.keys.add(o, key, ticks.Never)
	return o
}

// evict evicts the state of a key that is reset by now. It reports false if it found none.
func (p *banLimiter) evict(now int64) bool {
	for range maxEvictionChecks {
		first := p.keys.heap.First()
		if first.evictableAt > now {
			return false
		}
		if first.forgetAt <= now {
			p.keys.remove(first)
			return true
		}
		p.keys.setEvictableAt(first, first.forgetAt) // here and not at each rejection, which would take three times as long
	}
	return false
}

func (o *banState) reset() {
	o.rejections, o.oldest, o.until, o.duration = o.rejections[:0], 0, ticks.Never, 0
}

// count records a rejection at now. It reports whether that causes a ban.
func (o *banState) count(now int64, s BanConfig) bool {
	if len(o.rejections) < s.Rejections {
		o.rejections = append(o.rejections, now)
	} else {
		o.rejections[o.oldest] = now
		o.oldest = (o.oldest + 1) % s.Rejections
	}
	if len(o.rejections) < s.Rejections || ticks.Sub(now, o.rejections[o.oldest]) >= int64(s.Within) {
		return false
	}
	o.rejections, o.oldest = o.rejections[:0], 0
	return true
}

func (p *banLimiter) Traits() throttle.Traits {
	t := p.Limiter.Traits()
	t.CountsRejected, t.Parts = true, nil
	return t
}

// isUnused reports whether the ForgetAfter of all keys has passed by now. It forgets none,
// because a dry run may be as of any time.
func (p *banLimiter) isUnused(now int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	inUse := func(o *banState) bool { return o.forgetAt > now }
	return !slices.ContainsFunc(p.keys.heap.Items, inUse)
}
