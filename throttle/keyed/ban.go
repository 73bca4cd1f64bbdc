package keyed

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A BanConfig says which keys a Ban punishes, and how.
type BanConfig struct {
	Name        string        // shown as Decision.Policy during a penalty; "": "penalty"
	Refusals    int           // refusals that make a penalty; must be positive
	Within      time.Duration // in which they come; must be positive
	Duration    time.Duration // length of the first penalty; must be positive
	MaxDuration time.Duration // each further one is twice as long, but no longer than this; 0: as long as the first
	ForgetAfter time.Duration // after so long without a refusal or penalty all is forgiven; 0: Within or Max, whichever is longer
	MaxKeys     int           // keys that are watched at a time; 0: 65,536
}

// Validate returns an error that says what to change if s can never work.
func (s BanConfig) Validate() error {
	switch {
	case s.Refusals <= 0:
		return fmt.Errorf("keyed: ban %q: Refusals is %d: it must be positive", s.Name, s.Refusals)
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

// Ban refuses for a while whoever does not heed refusals. Who is refused After
// times Within a time is refused everything for a while, longer each time, until he
// has kept Quiet:
//
//	refusals        After 3, For d, Max 4d
//	 │││               │││                    │││              │││
//	─┴┴┴█████──────────┴┴┴██████████──────────┴┴┴██████████████████──▶ time
//	     |-d-|             |- 2d --|             |---- 4d ----|
//
// What is refused during a penalty is not counted: it has been paid for.
//
// Invariant: what is granted obeys the limiter inside. No more than MaxKeys keys are
// remembered, with After readings each; keys that are never refused cost nothing.
//
// The odd case is a crowd of more keys than that. Who has kept quiet is forgotten
// first; if nobody has, new keys are not watched, for otherwise who is punished could
// be forgotten for the sake of names that he made up. The limiter inside refuses them
// all the same.
type Ban struct {
	limiter throttle.Limiter
	config  BanConfig
	time    ticks.Timeline

	mu   sync.Mutex
	keys keyTable[*banState]
}

// A banState is what is remembered of a key.
type banState struct {
	pos      tablePosition
	refusals []int64 // the latest readings at which it was; a ring
	oldest   int     // the oldest of them
	until    int64   // the end of its penalty
	duration int64   // how long that was; 0: none yet
	forgetAt int64   // when all is forgotten
}

func (o *banState) position() *tablePosition { return &o.pos }

// evictableAt is for keyTable.evict.
func (o *banState) evictableAt(now int64) int64 { return max(o.forgetAt, now) }

// NewBan returns a limiter around l. A nil clk is the system clock; it is read
// where l says nothing of the time. It panics if s is invalid or l is nil.
func NewBan(l throttle.Limiter, s BanConfig, clk throttle.Clock) *Ban {
	if err := s.Validate(); err != nil {
		panic(err.Error() + " (NewBan)")
	}
	if l == nil {
		panic("keyed: NewBan: the limiter is nil")
	}
	if s.Name == "" {
		s.Name = "ban"
	}
	s.MaxDuration = max(s.MaxDuration, s.Duration)
	if s.ForgetAfter == 0 {
		s.ForgetAfter = max(s.Within, s.MaxDuration)
	}
	if s.MaxKeys == 0 {
		s.MaxKeys = 1 << 16
	}
	return &Ban{limiter: l, config: s, time: ticks.NewTimeline(clk)}
}

// Reserve implements throttle.Limiter. The Wait of a refusal that begins a penalty includes it.
func (p *Ban) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	until := p.bannedUntil(c.Key)
	dryRun := until != ticks.Never && p.time.Read(c.Now) < until
	d, now, err := p.reserveInner(ctx, c, dryRun)
	if dryRun && err == nil && now >= until { // the limiter has seen a later reading
		d, now, err = p.reserveInner(ctx, c, false)
	}
	if err != nil {
		return throttle.Decision{}, err
	}
	if now >= until && !d.OK && !c.DryRun && !c.Waits {
		until = p.countRefusal(c.Key, now)
	}
	if now < until {
		d = p.banned(d, until, now)
	}
	return d, nil
}

// reserveInner asks the limiter inside, and returns its reading of the clock as well.
func (p *Ban) reserveInner(ctx context.Context, c throttle.Claim, dryRun bool) (throttle.Decision, int64, error) {
	c.DryRun = c.DryRun || dryRun
	d, err := p.limiter.Reserve(ctx, c)
	if err != nil {
		return throttle.Decision{}, 0, err
	}
	return d, p.time.Read(d.At), nil
}

// banned returns the refusal of a claim that d is the answer to, were it not for a
// penalty. It waits for both.
func (p *Ban) banned(d throttle.Decision, until, now int64) throttle.Decision {
	left := time.Duration(ticks.Sub(until, now))
	if d.OK {
		d.Wait = 0
	}
	d = d.AsRefusal()
	if left > d.Wait {
		d.Wait, d.Policy = left, p.config.Name
	}
	d.ResetAfter = max(d.ResetAfter, left)
	return d
}

// bannedUntil returns the end of the latest penalty of key; ticks.Never: it had none.
func (p *Ban) bannedUntil(key string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o, ok := p.keys.byKey[key]; ok {
		return o.until
	}
	return ticks.Never
}

// countRefusal counts a refusal of key at now, and returns the end of its penalty.
func (p *Ban) countRefusal(key string, now int64) (until int64) {
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
	o.forgetAt = max(o.forgetAt, ticks.Add(now, int64(p.config.ForgetAfter)))
	if now < o.until || !o.count(now, p.config) {
		return o.until
	}
	o.duration = min(max(ticks.Mul(o.duration, 2), int64(p.config.Duration)), int64(p.config.MaxDuration))
	o.until = ticks.Add(now, o.duration)
	o.forgetAt = ticks.Add(o.until, int64(p.config.ForgetAfter))
	return o.until
}

// track returns a new offender; nil: there is no room.
func (p *Ban) track(key string, now int64) *banState {
	if p.keys.len() >= p.config.MaxKeys && !p.keys.evict(now, (*banState).evictableAt) {
		return nil
	}
	o := &banState{until: ticks.Never, forgetAt: ticks.Never}
	p.keys.add(o, key, ticks.Never)
	return o
}

func (o *banState) reset() {
	o.refusals, o.oldest, o.until, o.duration = o.refusals[:0], 0, ticks.Never, 0
}

// count notes a refusal at now. It reports whether that makes a penalty, and then
// begins to count anew.
func (o *banState) count(now int64, s BanConfig) bool {
	if len(o.refusals) < s.Refusals {
		o.refusals = append(o.refusals, now)
	} else {
		o.refusals[o.oldest] = now
		o.oldest = (o.oldest + 1) % s.Refusals
	}
	if len(o.refusals) < s.Refusals || ticks.Sub(now, o.refusals[o.oldest]) >= int64(s.Within) {
		return false
	}
	o.refusals, o.oldest = o.refusals[:0], 0
	return true
}

// Cancel implements throttle.Limiter.
func (p *Ban) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	p.limiter.Cancel(ctx, c, d)
}

// Observe implements throttle.Observer.
func (p *Ban) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	throttle.Observe(ctx, p.limiter, c, d, f)
}

// NonBlocking implements throttle.NonBlocking.
func (p *Ban) NonBlocking() bool { return throttle.IsNonBlocking(p.limiter) }

// Evictable implements throttle.Evictable.
func (p *Ban) Evictable(now time.Time) bool {
	p.mu.Lock()
	n := p.keys.len()
	for n > 0 && p.keys.evict(p.time.Read(now), (*banState).evictableAt) {
		n--
	}
	p.mu.Unlock()
	if n > 0 {
		return false
	}
	evictable, _ := throttle.IsEvictable(p.limiter, "", now)
	return evictable
}

// HoldsUntilEnd implements throttle.Holder.
func (p *Ban) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(p.limiter) }

// CountsRefusals implements throttle.RefusalCounter.
func (*Ban) CountsRefusals() bool { return true }
