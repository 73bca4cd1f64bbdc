package adaptive

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// An AdmissionControlConfig configures NewAdmissionControl. The zero
// AdmissionControlConfig has the values of the book Site Reliability Engineering.
type AdmissionControlConfig struct {
	// Name is returned as Decision.Policy. Empty means "admission control".
	Name string

	// K is the number of units that may be requested for each one that the server accepts. It
	// must be at least 1. Zero means 2.
	K float64

	// Per is how long outcomes are counted. Zero means 2 minutes.
	Per time.Duration

	// Rand returns a random number in [0, 1). It is called by one goroutine at a time. Nil
	// means rand.Float64.
	Rand func() float64
}

// Validate returns an error that states the invalid field if a is invalid.
func (a AdmissionControlConfig) Validate() error {
	switch {
	case a.K != 0 && !(a.K >= 1):
		return fmt.Errorf("adaptive: admission control %q: K is %v: it must be at least 1, or 0 for 2", a.Name, a.K)
	case a.Per < 0:
		return fmt.Errorf("adaptive: admission control %q: Per is %v: it must be positive, or 0 for 2 minutes", a.Name, a.Per)
	}
	return nil
}

// An admissionControl is the limiter of NewAdmissionControl.
type admissionControl struct {
	time   ticks.Timeline
	config AdmissionControlConfig

	randMu sync.Mutex // guards only config.Rand, which is not called under mu

	mu        sync.Mutex
	partStart int64 // start of the newest part; ticks.Never before the first counted request
	parts     [numParts]requestCounts
	sum       requestCounts
	newest    int // index of the newest part
}

// numParts is the number of parts into which Per is divided.
const numParts = 24

// requestCounts counts units.
type requestCounts struct{ requests, accepts int64 }

// NewAdmissionControl returns a limiter that rejects claims at random while a server rejects requests, because
// rejecting also costs the server resources. From the units requested within Per
// (requests) and those of them that the server accepted (accepts), it rejects a claim with
// the probability
//
//	max(0, (requests - K*accepts) / (requests + 1))
//
//	rejected
//	   1 ┤                        ___---‾‾‾
//	     │               _--‾‾‾
//	     │          ╱
//	   0 ┼─────────╱──────────────────────▶ requests for each one accepted
//	     0    1    K
//
// (Site Reliability Engineering, ed. Beyer et al., chapter Handling Overload.) While the
// server accepts at least one in K requests, no claim is rejected. A server that accepts a
// fixed rate gets K times that rate, however many claims are made: with a K of 2 it
// rejects one request for each one that it serves, and clients soon detect that it has
// recovered.
//
// Requests are claims whose outcome was observed, and those that it
// rejected. A claim in progress does not count; otherwise many claims at the start would
// look like an outage. The outcome Failed counts as not accepted.
//
// Invariant: requests are never less than accepts. The number of granted units has no
// bound; combine it with other limits by AllOf.
//
// Limitations: there is no time after which a claim is certain to be granted, so
// Decision.Wait is 0. A queue.Queue asks again every second. To fail immediately instead,
// use queue.Ticket.Reserve.
//
// It panics if a is invalid.
func NewAdmissionControl(a AdmissionControlConfig) throttle.Limiter {
	if err := a.Validate(); err != nil {
		panic(err.Error() + " (NewAdmissionControl)")
	}
	a.Name, a.K, a.Per = cmp.Or(a.Name, "admission control"), cmp.Or(a.K, 2), cmp.Or(a.Per, 2*time.Minute)
	if a.Rand == nil {
		a.Rand = rand.Float64
	}
	return &admissionControl{time: ticks.NewTimeline(), config: a, partStart: ticks.Never}
}

// SetClock replaces the clock; see throttle.WithClock.
func (l *admissionControl) SetClock(c throttle.Clock) { l.time.SetClock(c) }

// Reserve implements throttle.Limiter. A dry run also draws a random number.
func (l *admissionControl) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	given := l.time.Read(c.Now)
	d := throttle.Decision{Policy: l.config.Name, At: l.time.Stamp(given, given, c.Now)}
	l.mu.Lock()
	recent := l.recent(given)
	l.mu.Unlock()
	p := l.rejectProbability(recent)
	d.Fresh = c.DryRun && recent == requestCounts{}
	d.OK = p <= 0 || l.random() >= p
	if !d.OK && !c.DryRun && !c.Waits {
		l.mu.Lock()
		l.count(requestCounts{requests: n}, given)
		l.mu.Unlock()
	}
	return d, nil
}

func (l *admissionControl) random() float64 {
	l.randMu.Lock()
	defer l.randMu.Unlock()
	return l.config.Rand()
}

// rejectProbability returns the probability with which a claim is rejected; a negative
// result means 0.
func (l *admissionControl) rejectProbability(a requestCounts) float64 {
	requests := float64(a.requests)
	return (requests - l.config.K*float64(a.accepts)) / (requests + 1)
}

// Report implements throttle.Limiter.
func (l *admissionControl) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	n, err := c.Units()
	if err != nil || !d.OK || f.State != throttle.Ended {
		return
	}
	a := requestCounts{requests: n}
	if f.Outcome == throttle.Accepted {
		a.accepts = n
	}
	now := l.time.Read(f.Now)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(a, now)
}

// Traits implements throttle.Limiter.
func (*admissionControl) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true, CountsRejected: true}
}

// count adds a to the newest part.
func (l *admissionControl) count(a requestCounts, now int64) {
	l.advance(now)
	for _, to := range []*requestCounts{&l.parts[l.newest], &l.sum} {
		to.requests = ticks.Add(to.requests, a.requests)
		to.accepts = ticks.Add(to.accepts, a.accepts)
	}
}

// advance begins the part that now is in, and forgets those that are over.
func (l *admissionControl) advance(now int64) {
	if l.partStart == ticks.Never { // the first claim may have a time before the creation
		l.partStart = now
	}
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

// recent returns the sum as of now. It changes nothing, because the reading of a claim
// that is not counted may be ahead of others.
func (l *admissionControl) recent(now int64) requestCounts {
	if elapsed := l.elapsedParts(now); elapsed > 0 {
		return l.sumNewest(numParts - elapsed)
	}
	return l.sum
}

// elapsedParts returns the number of parts that have begun since the newest.
func (l *admissionControl) elapsedParts(now int64) int64 {
	if l.partStart == ticks.Never {
		return 0
	}
	return max(ticks.Sub(now, l.partStart), 0) / l.partLength()
}

func (l *admissionControl) partLength() int64 { return max(int64(l.config.Per)/numParts, 1) }

// sumNewest returns the sum of the n newest parts.
func (l *admissionControl) sumNewest(n int64) (sum requestCounts) {
	for i := range n {
		p := l.parts[(l.newest-int(i)+numParts)%numParts]
		sum.requests = ticks.Add(sum.requests, p.requests)
		sum.accepts = ticks.Add(sum.accepts, p.accepts)
	}
	return sum
}
