package throttle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// An AdmissionControlConfig says when an AdmissionControl refuses. The zero Accept is that of the book.
type AdmissionControlConfig struct {
	Name string        // shown as Decision.Policy; "": accept ratio
	K    float64       // units that may be asked for each one accepted; 0: 2; at least 1
	Per  time.Duration // for how long answers count; 0: 2 minutes

	// Rand returns a random number in [0, 1). It is called by one goroutine at a time.
	// Nil means rand.Float64.
	Rand func() float64
}

// Validate returns an error that says what to change if a can never work.
func (a AdmissionControlConfig) Validate() error {
	switch {
	case a.K != 0 && !(a.K >= 1):
		return fmt.Errorf("throttle: admission control %q: K is %v: it must be at least 1, or 0 for 2", a.Name, a.K)
	case a.Per < 0:
		return fmt.Errorf("throttle: admission control %q: Per is %v: it must be positive, or 0 for 2 minutes", a.Name, a.Per)
	}
	return nil
}

// AdmissionControl refuses claims at random, as many as a server would that has too much to
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
// 0. A queue.Queue asks again each second. To fail at once instead, use queue.Ticket.Reserve.
type AdmissionControl struct {
	clocked
	config AdmissionControlConfig

	randMu sync.Mutex // guards only accept.Rand, which is not called under mu

	mu        sync.Mutex
	partStart int64 // when the newest part began
	parts     [numParts]requestCounts
	sum       requestCounts
	newest    int // the newest part
}

// numParts is how finely Per is divided.
const numParts = 24

// requestCounts counts units.
type requestCounts struct{ requests, accepts int64 }

// NewAdmissionControl returns an AdmissionControl. A nil clk is the system clock. It panics if a
// is invalid.
func NewAdmissionControl(a AdmissionControlConfig, clk Clock) *AdmissionControl {
	must(a.Validate(), "NewAdmissionControl")
	if a.Name == "" {
		a.Name = "admission control"
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
	return &AdmissionControl{clocked: clocked{ticks.NewTimeline(clk)}, config: a}
}

// Reserve implements Limiter. A dry run draws as well.
func (l *AdmissionControl) Reserve(_ context.Context, c Claim) (Decision, error) {
	n, err := c.Units()
	if err != nil {
		return Decision{}, err
	}
	given := l.time.Read(c.Now)
	d := Decision{Policy: l.config.Name, At: l.time.Stamp(given, given, c.Now)}
	l.mu.Lock()
	p := l.rejectProbability(l.recent(given))
	l.mu.Unlock()
	d.OK = p <= 0 || l.random() >= p
	if !d.OK && !c.DryRun && !c.Waits {
		l.mu.Lock()
		l.count(requestCounts{requests: n}, given)
		l.mu.Unlock()
	}
	return d, nil
}

func (l *AdmissionControl) random() float64 {
	l.randMu.Lock()
	defer l.randMu.Unlock()
	return l.config.Rand()
}

// rejectProbability returns the probability with which a claim is refused.
func (l *AdmissionControl) rejectProbability(a requestCounts) float64 {
	requests := float64(a.requests)
	return (requests - l.config.K*float64(a.accepts)) / (requests + 1)
}

// Cancel implements Limiter. A claim that was not used is no request.
func (*AdmissionControl) Cancel(context.Context, Claim, Decision) {}

// Observe implements Observer.
func (l *AdmissionControl) Observe(_ context.Context, c Claim, d Decision, f Feedback) {
	n, err := c.Units()
	if err != nil || !d.OK || f.Partial {
		return
	}
	a := requestCounts{requests: n}
	if f.Outcome == Accepted {
		a.accepts = n
	}
	now := l.time.Read(f.Now)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(a, now)
}

// count adds a to the newest part.
func (l *AdmissionControl) count(a requestCounts, now int64) {
	l.advance(now)
	for _, to := range []*requestCounts{&l.parts[l.newest], &l.sum} {
		to.requests = ticks.Add(to.requests, a.requests)
		to.accepts = ticks.Add(to.accepts, a.accepts)
	}
}

// advance begins the part that now is in, and forgets those that are over.
func (l *AdmissionControl) advance(now int64) {
	elapsed := l.elapsedParts(now)
	if elapsed == 0 {
		return
	}
	for range min(elapsed, numParts) {
		l.newest = (l.newest + 1) % numParts
		l.parts[l.newest] = requestCounts{}
	}
	l.partStart = ticks.Add(l.partStart, elapsed*l.partLength())
	l.sum = l.sumNewest(numParts)
}

// recent returns what counts as of now. It changes nothing: who only asks may be ahead
// of the others.
func (l *AdmissionControl) recent(now int64) requestCounts {
	if elapsed := l.elapsedParts(now); elapsed > 0 {
		return l.sumNewest(numParts - elapsed)
	}
	return l.sum
}

// elapsedParts returns how many parts have begun since the newest.
func (l *AdmissionControl) elapsedParts(now int64) int64 {
	return max(ticks.Sub(now, l.partStart), 0) / l.partLength()
}

func (l *AdmissionControl) partLength() int64 { return max(int64(l.config.Per)/numParts, 1) }

// sumNewest returns the sum of the n newest parts.
func (l *AdmissionControl) sumNewest(n int64) (sum requestCounts) {
	for i := range n {
		p := l.parts[(l.newest-int(i)+numParts)%numParts]
		sum.requests = ticks.Add(sum.requests, p.requests)
		sum.accepts = ticks.Add(sum.accepts, p.accepts)
	}
	return sum
}

// Idle implements Idler.
func (l *AdmissionControl) Evictable(now time.Time) bool {
	at := l.time.Read(now)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.recent(at) == requestCounts{}
}

// CountsRefusals implements RefusalCounter.
func (*AdmissionControl) CountsRefusals() bool { return true }
