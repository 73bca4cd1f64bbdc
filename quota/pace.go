package quota

import (
	"math"
	"time"
)

// A pace is our own guess at the rate of a server that refuses without saying
// what it allows. There is none until the first refusal.
//
// A refusal is worth more than its annoyance: at that moment nothing was left. So
// between two refusals just as much was accepted as had come back in between,
//
//	refused            refused
//	   │ ok ok ok ok ok   │        seen = 5 / span
//	   ├───── span ───────┤
//
// which is exact for a leaky bucket, and never too much for a window. After the
// first refusal alone the guess is what was accepted until the gate opened again.
//
// From there the pace closes half of the way to its goal each second, but only
// while callers wait for it:
//
//	rate
//	  │         refused ╳
//	  │              ╱  │            · · · · goal · · · · ╱  a little higher,
//	  │           ╱     │        ╭───────────────────────╯   after a while
//	  │        ╱        │   ╭───╯
//	  │     ╱           ╰──╯ seen
//	  └──────────────────────────────────────────────────▶ time
//
// The goal is a little below the rate that was refused, and once two spans agree
// it is what they saw: then it is known, not guessed.
type pace struct {
	rate   float64   // units a second; 0: no pace
	goal   float64   // where the rate climbs to; +Inf: not known
	next   time.Time // when the next unit may be sent
	waited bool      // somebody waited since the rate last grew
	grown  time.Time // when it last grew
	cut    time.Time // when it was last cut
	seen   float64   // of the span before this one; 0: none
	span   tally     // since the last refusal
	first  tally     // before the first refusal, and what was in flight then
	told   time.Time // when the first refusal asked to come back; zero: not said
}

// A tally counts accepted units since a moment.
type tally struct {
	since, until time.Time // zero: nothing yet
	ok           int64
}

func (t tally) rate(now time.Time) float64 {
	return float64(t.ok) / max(now.Sub(t.since).Seconds(), 1e-3)
}

const (
	growEvery = time.Second
	growAlone = 1.10             // each growEvery, while no goal is known
	climb     = 1.01             // each growEvery, past the goal
	climbFrom = 20 * time.Second // after the last cut
	idleAfter = time.Second      // without need: what was accepted before says nothing of now
	backOff   = 0.95             // of the rate that was refused is the goal
	justBelow = 0.98             // of what is seen is safe: exactly at a limit is too fast
	agree     = 0.07             // spans that differ by less agree
	enough    = 8                // units that make a span worth believing
	minPace   = 1.0 / 60         // units a second: the slowest that we go by guess
)

// check reports whether a unit may be sent as of now, and if not, how long until.
func (p *pace) check(now time.Time) (wait time.Duration, ok bool) {
	if p.rate == 0 {
		return 0, true
	}
	wait = p.next.Sub(now)
	return max(wait, 0), wait <= 0
}

// sent notes that n units are on their way. Nothing has stood in their way since
// free.
func (p *pace) sent(n int64, now, free time.Time) {
	if p.span.since.IsZero() || now.Sub(later(free, p.next)) > idleAfter {
		p.span, p.seen = tally{since: now}, 0
	}
	if p.rate == 0 {
		return
	}
	p.grow(now)
	p.spend(n, now)
}

// grow raises the rate a little.
func (p *pace) grow(now time.Time) {
	if !p.waited || now.Sub(p.grown) < growEvery {
		return
	}
	switch {
	case math.IsInf(p.goal, 1):
		p.rate *= growAlone
	case p.rate < p.goal:
		p.rate += (p.goal - p.rate) / 2
	case now.Sub(p.cut) > climbFrom:
		p.rate *= climb
	}
	p.waited, p.grown = false, now
}

// accepted counts a good answer.
func (p *pace) accepted() {
	p.span.ok++
	if p.rate == 0 {
		p.first.ok++
	}
}

// opened makes the first guess, now that the gate g has opened again. What was
// accepted before the first refusal had come back by now, and not yet when the
// gate's last probe was refused. A server that told when to come back knows its
// window, so the rate it spoke of is the goal.
func (p *pace) opened(now, probed time.Time, g *gate) {
	if p.rate > 0 || p.first.since.IsZero() {
		return
	}
	p.rate, p.goal = p.first.rate(now), math.Inf(1)
	if !p.told.IsZero() {
		p.goal = p.first.rate(p.told)
		p.rate = p.goal
	}
	if g.at.After(p.first.until) {
		p.rate = p.first.rate(g.at.Add(now.Sub(g.at) / 2))
	}
	p.next, p.grown, p.cut = probed, now, now
	p.spend(1, probed)
}

// spend moves next by n units, the first of which is sent now.
func (p *pace) spend(n int64, now time.Time) {
	p.next = later(p.next, now).Add(time.Duration(float64(n) / p.rate * 1e9))
}

// refuse learns from a refusal. told is the wait the server asked for; 0: none.
func (p *pace) refuse(now time.Time, told time.Duration) {
	switch {
	case p.rate > 0:
		p.slow(now)
	case p.first.since.IsZero():
		p.first = p.span
		p.first.until = now
		if told > 0 {
			p.told = now.Add(told)
		}
	}
	p.span = tally{since: now}
}

// slow lowers the rate.
func (p *pace) slow(now time.Time) {
	seen, refused := p.span.rate(now), p.rate
	p.goal = backOff * refused
	p.rate = backOff * p.goal
	if p.span.ok >= enough {
		if math.Abs(seen-p.seen) < agree*seen {
			p.goal = min(p.goal, justBelow*(seen+p.seen)/2)
		}
		p.rate = max(min(p.goal, justBelow*seen), refused/4)
		p.seen = seen
	}
	p.rate, p.goal = max(p.rate, minPace), max(p.goal, minPace)
	p.waited, p.grown, p.cut = false, now, now
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
