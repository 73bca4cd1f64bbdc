package throttletest

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// wrapper wraps a recording limiter and checks which Decisions it gets back.
func (s *suite) wrapper() {
	if s.Wrap == nil {
		return
	}
	for name, end := range map[string]func(l throttle.Limiter, c throttle.Claim, d throttle.Decision){
		"unused": func(l throttle.Limiter, c throttle.Claim, d throttle.Decision) {
			l.Report(s.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		},
		"ended": func(l throttle.Limiter, c throttle.Claim, d throttle.Decision) {
			l.Report(s.Context(), c, d, throttle.Feedback{State: throttle.Ongoing})
			l.Report(s.Context(), c, d, throttle.Feedback{Cost: 3})
		},
	} {
		p := &recordingLimiter{}
		// Two layers of AllOf give the Decision a part that cannot be copied field by field.
		l := s.Wrap(throttle.AllOf(throttle.AllOf(p)))
		c := throttle.Claim{Key: key, Cost: 2}
		first := s.grant(l, c)
		second := s.grant(l, c)
		end(l, c, second)
		end(l, c, first)
		if got := p.ended[name]; len(got) == 0 {
			s.Errorf("the Report of a claim that was %s did not reach the limiter inside the wrapper", name)
		} else if got[0] != p.granted[1] || got[len(got)-1] != p.granted[0] {
			s.Errorf("the Report of a claim that was %s reached the limiter inside the wrapper with another Decision than it had made: %+v, made %+v", name, got, p.granted)
		} else if name == "ended" && len(got) != 4 {
			s.Errorf("2 claims were reported twice each; the limiter inside the wrapper got %d reports", len(got))
		}
	}
}

func (s *suite) grant(l throttle.Limiter, c throttle.Claim) throttle.Decision {
	s.Helper()
	d, err := l.Reserve(s.Context(), c)
	if err != nil || !d.OK {
		s.Fatalf("Spec.Wrap: around a limiter that grants: %s, error %v", describe(d), err)
	}
	return d
}

// recordingLimiter grants every claim and records the calls of its methods.
type recordingLimiter struct {
	traits *throttle.Traits // nil: EndsAtResponse; otherwise answer is the decision on every claim
	answer throttle.Decision

	mu      sync.Mutex
	claims  []throttle.Claim
	granted []throttle.Decision
	ended   map[string][]throttle.Decision
}

// Reserve implements throttle.Limiter.
func (p *recordingLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.claims = append(p.claims, c); p.traits != nil {
		return p.answer, nil
	}
	n := int64(len(p.granted))
	d := throttle.Decision{OK: true, Policy: "probe", At: epoch, Limit: 1000, Remaining: 900 - n, Grant: uint64(77 + n)}
	if !c.DryRun {
		p.granted = append(p.granted, d)
	}
	return d, nil
}

// Report implements throttle.Limiter.
func (p *recordingLimiter) Report(_ context.Context, _ throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	how := "ended"
	if f.State == throttle.Unused {
		how = "unused"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = map[string][]throttle.Decision{}
	}
	p.ended[how] = append(p.ended[how], d)
}

// Traits implements throttle.Limiter.
func (p *recordingLimiter) Traits() throttle.Traits {
	if p.traits != nil {
		return *p.traits
	}
	return throttle.Traits{EndsAtResponse: true}
}

// forwarding checks that a wrapper forwards claims, returns decisions unchanged, and states nothing about
// itself that is not true of the limiter in it.
func (s *suite) forwarding() {
	if s.Wrap == nil {
		return
	}
	granted := throttle.Decision{OK: true, Policy: "probe", At: epoch, Limit: 10, Remaining: 8, ResetAfter: time.Minute, Per: time.Hour}
	rejected := granted
	rejected.OK, rejected.Wait, rejected.Expected, rejected.QueueBound = false, time.Second, 2*time.Second, 3
	rejected.ServerImposed, rejected.Estimated, rejected.Test = true, true, true
	fresh := throttle.Decision{OK: true, Policy: "probe", At: epoch, Limit: 10, Remaining: 10}
	for _, t := range []throttle.Traits{{CountsRejected: true}, {NonBlocking: true, EndsAtResponse: true, BooksAhead: true}} {
		for _, d := range []throttle.Decision{granted, rejected, fresh} {
			s.checkForwards(t, d, throttle.Claim{Key: key, Cost: 2, Now: epoch, Waits: true, Waited: time.Second, Deadline: epoch.Add(time.Hour)})
			d.Fresh = d.Remaining == d.Limit
			s.checkForwards(t, d, throttle.Claim{Key: key, Cost: 2, Now: epoch, Waits: true, DryRun: true})
			s.checkForwards(t, throttle.Decision{OK: true, Policy: "probe", At: epoch, Wait: time.Second}, throttle.Claim{Key: key, Now: epoch, Ahead: time.Minute})
		}
	}
}

// checkForwards checks how a wrapper forwards c to a limiter with the Traits t, and what it makes of d, the answer.
func (s *suite) checkForwards(t throttle.Traits, d throttle.Decision, c throttle.Claim) {
	s.Helper()
	p := &recordingLimiter{traits: &t, answer: d}
	l := s.Wrap(p)
	got, err := l.Reserve(s.Context(), c)
	if err != nil || got.OK != d.OK && !got.OverLimit {
		s.Fatalf("Reserve(%+v): %s, error %v; the limiter inside the wrapper: %s", c, describe(got), err, describe(d))
	}
	outer := l.Traits() // after a grant, see throttle.Traits.EndsAtResponse
	if outer.NonBlocking && !t.NonBlocking || outer.EndsAtResponse && !t.EndsAtResponse || t.CountsRejected && !outer.CountsRejected {
		s.Errorf("the wrapper has the Traits %+v; the limiter inside it: %+v", outer, t)
	}
	if !slices.ContainsFunc(p.claims, func(in throttle.Claim) bool {
		if !outer.BooksAhead {
			in.Ahead = c.Ahead
		}
		return in == c
	}) {
		s.Errorf("the claim %+v reached the limiter inside the wrapper as %+v", c, p.claims)
	}
	if got.Policy != d.Policy || got.OK != d.OK {
		return // another limiter decided
	}
	if got.Fresh && !d.Fresh {
		s.Errorf("Reserve(%+v): Fresh is true; it is false inside the wrapper", c)
	}
	got.Degraded, got.OverLimit, got.Shadow, got.Fresh, got.Grant = d.Degraded, d.OverLimit, d.Shadow, d.Fresh, d.Grant
	a, b := reflect.ValueOf(got), reflect.ValueOf(d)
	for i := range a.NumField() {
		if f := a.Type().Field(i); f.IsExported() && !a.Field(i).Equal(b.Field(i)) {
			s.Errorf("Reserve(%+v): %s is %v; it is %v inside the wrapper", c, f.Name, a.Field(i), b.Field(i))
		}
	}
}
