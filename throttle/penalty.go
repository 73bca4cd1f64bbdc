package throttle

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A Sentence says whom a Penalty punishes, and how.
type Sentence struct {
	Name    string        // shown as Decision.Policy during a penalty; "": "penalty"
	After   int           // refusals that make a penalty; must be positive
	Within  time.Duration // in which they come; must be positive
	For     time.Duration // length of the first penalty; must be positive
	Max     time.Duration // each further one is twice as long, but no longer than this; 0: as long as the first
	Quiet   time.Duration // after so long without a refusal or penalty all is forgiven; 0: Within or Max, whichever is longer
	MaxKeys int           // keys that are watched at a time; 0: 65,536
}

// Validate returns an error that says what to change if s can never work.
func (s Sentence) Validate() error {
	switch {
	case s.After <= 0:
		return fmt.Errorf("throttle: penalty %q: After is %d: it must be positive", s.Name, s.After)
	case s.Within <= 0 || s.For <= 0:
		return fmt.Errorf("throttle: penalty %q: Within is %v and For %v: they must be positive", s.Name, s.Within, s.For)
	case s.Max != 0 && s.Max < s.For:
		return fmt.Errorf("throttle: penalty %q: Max is %v: it must not be less than For, which is %v; or 0 for For", s.Name, s.Max, s.For)
	case s.Quiet != 0 && s.Quiet < s.Within:
		return fmt.Errorf("throttle: penalty %q: Quiet is %v: it must not be less than Within, which is %v", s.Name, s.Quiet, s.Within)
	case s.MaxKeys < 0:
		return fmt.Errorf("throttle: penalty %q: MaxKeys is %d: it must be positive, or 0 for 65,536", s.Name, s.MaxKeys)
	}
	return nil
}

// Penalty refuses for a while whoever does not heed refusals. Who is refused After
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
type Penalty struct {
	limiter  Limiter
	sentence Sentence
	time     timeline

	mu        sync.Mutex
	offenders roster[*offender]
}

// An offender is what is remembered of a key.
type offender struct {
	at       berth
	refused  []int64 // the latest readings at which it was; a ring
	next     int     // the oldest of them
	until    int64   // the end of its penalty
	lasts    int64   // how long that was; 0: none yet
	forgiven int64   // when all is forgotten
}

func (o *offender) berth() *berth { return &o.at }

// unused is for roster.forget.
func (o *offender) unused(now int64) int64 { return max(o.forgiven, now) }

// NewPenalty returns a limiter around l. A nil clk is the system clock; it is read
// where l says nothing of the time. It panics if s is invalid or l is nil.
func NewPenalty(l Limiter, s Sentence, clk Clock) *Penalty {
	if err := s.Validate(); err != nil {
		panic(err.Error() + " (NewPenalty)")
	}
	if l == nil {
		panic("throttle: NewPenalty: the limiter is nil: a penalty is for what another limiter refuses")
	}
	if s.Name == "" {
		s.Name = "penalty"
	}
	s.Max = max(s.Max, s.For)
	if s.Quiet == 0 {
		s.Quiet = max(s.Within, s.Max)
	}
	if s.MaxKeys == 0 {
		s.MaxKeys = 1 << 16
	}
	return &Penalty{limiter: l, sentence: s, time: newTimeline(clk)}
}

// Reserve implements Limiter. The Wait of a refusal that begins a penalty includes it.
func (p *Penalty) Reserve(ctx context.Context, c Claim) (Decision, error) {
	until := p.until(c.Key)
	looks := until != neverRead && p.time.read(c.Now) < until
	d, now, err := p.ask(ctx, c, looks)
	if looks && err == nil && now >= until { // the limiter has seen a later reading
		d, now, err = p.ask(ctx, c, false)
	}
	if err != nil {
		return Decision{}, err
	}
	if now >= until && !d.OK && !c.DryRun && !c.Waits {
		until = p.refused(c.Key, now)
	}
	if now < until {
		d = p.punish(d, until, now)
	}
	return d, nil
}

// ask asks the limiter inside, and returns its reading of the clock as well.
func (p *Penalty) ask(ctx context.Context, c Claim, looks bool) (Decision, int64, error) {
	c.DryRun = c.DryRun || looks
	d, err := p.limiter.Reserve(ctx, c)
	if err != nil {
		return Decision{}, 0, err
	}
	return d, p.time.read(d.At), nil
}

// punish returns the refusal of a claim that d is the answer to, were it not for a
// penalty. It waits for both.
func (p *Penalty) punish(d Decision, until, now int64) Decision {
	left := time.Duration(subSat(until, now))
	if d.OK {
		d.Wait = 0
	}
	if left > d.Wait {
		d.Wait, d.Policy = left, p.sentence.Name
	}
	d.OK, d.Remaining, d.trail = false, 0, nil
	d.ResetAfter = max(d.ResetAfter, left)
	return d
}

// until returns the end of the latest penalty of key; neverRead: it had none.
func (p *Penalty) until(key string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o, ok := p.offenders.byKey[key]; ok {
		return o.until
	}
	return neverRead
}

// refused counts a refusal of key at now, and returns the end of its penalty.
func (p *Penalty) refused(key string, now int64) (until int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o, ok := p.offenders.byKey[key]
	if !ok {
		if o = p.watch(key, now); o == nil {
			return neverRead
		}
	}
	if now >= o.forgiven {
		o.forget()
	}
	o.forgiven = max(o.forgiven, addSat(now, int64(p.sentence.Quiet)))
	if now < o.until || !o.count(now, p.sentence) {
		return o.until
	}
	o.lasts = min(max(mulSat(o.lasts, 2), int64(p.sentence.For)), int64(p.sentence.Max))
	o.until = addSat(now, o.lasts)
	o.forgiven = addSat(o.until, int64(p.sentence.Quiet))
	return o.until
}

// watch returns a new offender; nil: there is no room.
func (p *Penalty) watch(key string, now int64) *offender {
	if p.offenders.len() >= p.sentence.MaxKeys && !p.offenders.forget(now, (*offender).unused) {
		return nil
	}
	o := &offender{until: neverRead, forgiven: neverRead}
	p.offenders.add(o, key, neverRead)
	return o
}

func (o *offender) forget() {
	o.refused, o.next, o.until, o.lasts = o.refused[:0], 0, neverRead, 0
}

// count notes a refusal at now. It reports whether that makes a penalty, and then
// begins to count anew.
func (o *offender) count(now int64, s Sentence) bool {
	if len(o.refused) < s.After {
		o.refused = append(o.refused, now)
	} else {
		o.refused[o.next] = now
		o.next = (o.next + 1) % s.After
	}
	if len(o.refused) < s.After || subSat(now, o.refused[o.next]) >= int64(s.Within) {
		return false
	}
	o.refused, o.next = o.refused[:0], 0
	return true
}

// Cancel implements Limiter.
func (p *Penalty) Cancel(ctx context.Context, c Claim, d Decision) { p.limiter.Cancel(ctx, c, d) }

// Observe implements Observer.
func (p *Penalty) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	Observe(ctx, p.limiter, c, d, f)
}

// Local implements Local.
func (p *Penalty) Local() bool { return isLocal(p.limiter) }

// Idle implements Idler.
func (p *Penalty) Idle(now time.Time) bool {
	p.mu.Lock()
	n := p.offenders.len()
	for n > 0 && p.offenders.forget(p.time.read(now), (*offender).unused) {
		n--
	}
	p.mu.Unlock()
	return n == 0 && allIdle(now, p.limiter)
}
