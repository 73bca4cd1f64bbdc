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
		"Cancel": func(l throttle.Limiter, c throttle.Claim, d throttle.Decision) {
			l.Cancel(s.Context(), c, d)
		},
		"Observe": func(l throttle.Limiter, c throttle.Claim, d throttle.Decision) {
			throttle.Observe(s.Context(), l, c, d, throttle.Feedback{Partial: true})
			throttle.Observe(s.Context(), l, c, d, throttle.Feedback{Cost: 3})
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
			s.Errorf("%s did not reach the limiter inside the wrapper", name)
		} else if got[0] != p.granted[1] || got[len(got)-1] != p.granted[0] {
			s.Errorf("%s reached the limiter inside the wrapper with another Decision than it had made: %+v, made %+v", name, got, p.granted)
		} else if name == "Observe" && len(got) != 4 {
			s.Errorf("2 claims were observed twice each; the limiter inside the wrapper observed %d", len(got))
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

// Cancel implements throttle.Limiter.
func (p *recordingLimiter) Cancel(_ context.Context, _ throttle.Claim, d throttle.Decision) {
	p.record("Cancel", d)
}

// Observe implements throttle.Observer.
func (p *recordingLimiter) Observe(_ context.Context, _ throttle.Claim, d throttle.Decision, _ throttle.Feedback) {
	p.record("Observe", d)
}

func (p *recordingLimiter) record(how string, d throttle.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended == nil {
		p.ended = map[string][]throttle.Decision{}
	}
	p.ended[how] = append(p.ended[how], d)
}
