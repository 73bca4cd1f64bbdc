package quota

import "time"

// A pace is our own guess at the rate of a server that refuses without saying
// what it allows. There is none until the first refusal.
//
// A refusal is worth more than its annoyance: at that moment nothing was left. So
// between two refusals just as much was accepted as had come back in between,
//
//	refused            refused
//	   │ ok ok ok ok ok   │        rate = 5 / span
//	   ├───── span ───────┤
//
// which is exact for a leaky bucket and not too much for any window. After the
// first refusal alone the guess is what was accepted until the gate opened again.
//
// From there it climbs, only while callers wait for it: fast while well below the
// rate that was last refused, then slowly past it.
type pace struct {
	rate    float64   // units a second; 0: no pace
	next    time.Time // when the next unit may be sent
	refused float64   // the rate at the last refusal; 0: none
	waited  bool      // somebody waited since the rate last grew
	hold    time.Time // no growth until then
	span    tally     // since the last refusal
	first   tally     // up to the first refusal, until the gate opens
}

// A tally counts accepted units since a moment.
type tally struct {
	since time.Time // zero: nothing yet
	ok    int64
}

const (
	growEvery = time.Second
	holdAfter = 10 * time.Second
	idleAfter = 10 * time.Second // what was accepted before such a pause says nothing of now
)

// check reports whether a unit may be sent as of now, and if not, how long until.
func (p *pace) check(now time.Time) (wait time.Duration, ok bool) {
	if p.rate == 0 {
		return 0, true
	}
	if wait = p.next.Sub(now); wait <= 0 {
		return 0, true
	}
	p.waited = true
	return wait, false
}

// sent notes that n units are on their way; idle is since the last ones.
func (p *pace) sent(n int64, now time.Time, idle time.Duration) {
	if p.span.since.IsZero() || idle > idleAfter && p.rate == 0 {
		p.span = tally{since: now}
	}
	if p.rate == 0 {
		return
	}
	p.grow(now)
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(float64(n) / p.rate * 1e9))
}

// grow raises the rate a little.
func (p *pace) grow(now time.Time) {
	if !p.waited || now.Before(p.hold) {
		return
	}
	switch {
	case p.refused == 0:
		p.rate *= 1.05
	case p.rate < 0.9*p.refused:
		p.rate *= 1.10
	case p.rate < p.refused:
		p.rate *= 1.01
	default:
		p.rate *= 1.02
	}
	p.waited, p.hold = false, now.Add(growEvery)
}

// accepted counts a good answer. opened says that it opened the gate.
func (p *pace) accepted(now time.Time, opened bool) {
	p.span.ok++
	if !opened || p.rate > 0 || p.first.since.IsZero() {
		return
	}
	if span := now.Sub(p.first.since); span > 0 {
		p.rate, p.next = float64(p.first.ok+p.span.ok)/span.Seconds(), now
	}
}

// refuse learns from a refusal. told is the wait the server asked for; 0: none.
func (p *pace) refuse(now time.Time, told time.Duration) {
	span := now.Sub(p.span.since)
	switch {
	case p.rate > 0:
		p.cut(max(span, told))
		p.hold = now.Add(holdAfter)
	case told > 0 && p.span.ok > 0:
		// After told there is room again for what was accepted until now.
		p.rate = float64(p.span.ok) / (span + told).Seconds()
		p.hold = now.Add(holdAfter)
	case p.first.since.IsZero():
		p.first = p.span
	}
	p.span = tally{since: now}
}

// cut lowers the rate to what was accepted during span, within reason.
func (p *pace) cut(span time.Duration) {
	p.refused = p.rate
	seen := 0.98 * float64(p.span.ok) / max(span.Seconds(), 1e-3)
	p.rate = max(min(seen, 0.95*p.refused), 0.5*p.refused, minPace)
}

// minPace is the slowest that we go by guess: one a minute.
const minPace = 1.0 / 60
