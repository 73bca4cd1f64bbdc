package throttle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// An Accept says when an AcceptRatio refuses. The zero Accept is that of the book.
type Accept struct {
	Name string        // shown as Decision.Policy; "": accept ratio
	K    float64       // units that may be asked for each one accepted; 0: 2; at least 1
	Per  time.Duration // for how long answers count; 0: 2 minutes

	// Rand returns a random number in [0, 1). It is called by one goroutine at a time.
	// Nil means rand.Float64.
	Rand func() float64
}

// Validate returns an error that says what to change if a can never work.
func (a Accept) Validate() error {
	switch {
	case a.K != 0 && !(a.K >= 1):
		return fmt.Errorf("throttle: accept %q: K is %v: it must be at least 1, or 0 for 2", a.Name, a.K)
	case a.Per < 0:
		return fmt.Errorf("throttle: accept %q: Per is %v: it must be positive, or 0 for 2 minutes", a.Name, a.Per)
	}
	return nil
}

// AcceptRatio refuses claims at random, as many as a server would that has too much to
// do: to refuse costs it, too. Of what was asked in the last two minutes, requests, and
// what the server accepted of that, accepts, it refuses a claim with the probability
//
//	max(0, (requests - K*accepts) / (requests + 1))
//
//	refused here
//	   1 ┤                        ___---‾‾‾
//	     │               _--‾‾‾
//	     │          ╱
//	   0 ┼─────────╱──────────────────────▶ requests for each one accepted
//	     0    1    K
//
// (Site Reliability Engineering, ed. Beyer et al., chapter Handling Overload.) While
// most is accepted nothing is refused. A server that accepts a fixed rate gets K times
// that, however many want something of it: with 2 it has to refuse one for each one
// that it serves, and clients soon notice that it is better.
//
// Requests are claims that the server has answered, and those that are refused here.
// One that is on its way counts for nothing yet: else a start with many at a time would
// look like an outage. Failed counts as not accepted.
//
// Invariant: requests are never less than accepts. There is no bound on what acts; add
// other limits with AllOf.
//
// The odd case is Decision.Wait: there is no time after which a claim is granted, it is
// 0. A Waiter asks again each second. To fail at once instead, use Ticket.Reserve.
type AcceptRatio struct {
	time   timeline
	accept Accept

	draws sync.Mutex // guards only accept.Rand, which is not called under mu

	mu    sync.Mutex
	since int64 // when the newest part began
	parts [acceptParts]answers
	sum   answers
	next  int // the newest part
}

// acceptParts is how finely Per is divided.
const acceptParts = 24

// answers counts units.
type answers struct{ requests, accepts int64 }

// NewAcceptRatio returns an AcceptRatio. A nil clk is the system clock. It panics if a
// is invalid.
func NewAcceptRatio(a Accept, clk Clock) *AcceptRatio {
	if err := a.Validate(); err != nil {
		panic(err.Error() + " (NewAcceptRatio)")
	}
	if a.Name == "" {
		a.Name = "accept ratio"
	}
	if a.K == 0 {
		a.K = 2
	}
	if a.Per == 0 {
		a.Per = 2 * time.Minute
	}
	if a.Rand == nil {
		a.Rand = rand.Float64
	}
	return &AcceptRatio{time: newTimeline(clk), accept: a}
}

// Reserve implements Limiter. A dry run draws as well.
func (l *AcceptRatio) Reserve(_ context.Context, c Claim) (Decision, error) {
	n, err := c.Units()
	if err != nil {
		return Decision{}, err
	}
	given := l.time.read(c.Now)
	d := Decision{Policy: l.accept.Name, At: l.time.stamp(given, given, c.Now)}
	l.mu.Lock()
	p := l.refuses(l.recent(given))
	l.mu.Unlock()
	d.OK = p <= 0 || l.draw() >= p
	if !d.OK && !c.DryRun && !c.Waits {
		l.mu.Lock()
		l.count(answers{requests: n}, given)
		l.mu.Unlock()
	}
	return d, nil
}

func (l *AcceptRatio) draw() float64 {
	l.draws.Lock()
	defer l.draws.Unlock()
	return l.accept.Rand()
}

// refuses returns the probability with which a claim is refused.
func (l *AcceptRatio) refuses(a answers) float64 {
	requests := float64(a.requests)
	return (requests - l.accept.K*float64(a.accepts)) / (requests + 1)
}

// Local implements Local.
func (*AcceptRatio) Local() bool { return true }

// Cancel implements Limiter. A claim that was not used is no request.
func (*AcceptRatio) Cancel(context.Context, Claim, Decision) {}

// Observe implements Observer.
func (l *AcceptRatio) Observe(_ context.Context, c Claim, d Decision, f Feedback) {
	n, err := c.Units()
	if err != nil || !d.OK || f.More {
		return
	}
	a := answers{requests: n}
	if f.Outcome == Accepted {
		a.accepts = n
	}
	now := l.time.read(f.Now)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(a, now)
}

// count adds a to the newest part.
func (l *AcceptRatio) count(a answers, now int64) {
	l.turn(now)
	for _, to := range []*answers{&l.parts[l.next], &l.sum} {
		to.requests = addSat(to.requests, a.requests)
		to.accepts = addSat(to.accepts, a.accepts)
	}
}

// turn begins the part that now is in, and forgets those that are over.
func (l *AcceptRatio) turn(now int64) {
	over := l.over(now)
	if over == 0 {
		return
	}
	for range min(over, acceptParts) {
		l.next = (l.next + 1) % acceptParts
		l.parts[l.next] = answers{}
	}
	l.since = addSat(l.since, over*l.part())
	l.sum = l.newest(acceptParts)
}

// recent returns what counts as of now. It changes nothing: who only asks may be ahead
// of the others.
func (l *AcceptRatio) recent(now int64) answers {
	if over := l.over(now); over > 0 {
		return l.newest(acceptParts - over)
	}
	return l.sum
}

// over returns how many parts have begun since the newest.
func (l *AcceptRatio) over(now int64) int64 { return max(subSat(now, l.since), 0) / l.part() }

func (l *AcceptRatio) part() int64 { return max(int64(l.accept.Per)/acceptParts, 1) }

// newest returns the sum of the n newest parts.
func (l *AcceptRatio) newest(n int64) (sum answers) {
	for i := range n {
		p := l.parts[(l.next-int(i)+acceptParts)%acceptParts]
		sum.requests = addSat(sum.requests, p.requests)
		sum.accepts = addSat(sum.accepts, p.accepts)
	}
	return sum
}
