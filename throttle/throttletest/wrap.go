package throttletest

import (
	"context"
	"sync"

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
			s.Errorf("2 claims were reported twice each; the limiter inside the wrapper was told %d times", len(got))
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
	mu      sync.Mutex
	granted []throttle.Decision
	ended   map[string][]throttle.Decision
}

// Reserve implements throttle.Limiter.
func (p *recordingLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
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
func (*recordingLimiter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }
