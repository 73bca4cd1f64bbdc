package throttleredis

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// Penalty returns a limiter like throttle.NewPenalty around AllOf(limits...), for all
// processes together and still in one round trip; around one limit it books ahead if that
// does. MaxKeys does not matter: keys that keep quiet vanish. It panics if v or s is
// invalid, or AllOf would.
func (s *Store) Penalty(v throttle.Sentence, limits ...*Limiter) throttle.Limiter {
	if v.Name == "" {
		v.Name = "penalty"
	}
	longest := max(v.Max, v.For)
	quiet := v.Quiet
	if quiet == 0 {
		quiet = max(v.Within, longest)
	}
	what := ""
	for _, l := range limits {
		if l != nil {
			what += l.tail
		}
	}
	judge := s.limiter(limit{
		algorithm: "penalty",
		err:       v.Validate(),
		policy:    v.Name,
		scope:     what,
		scale:     1,
		refusals:  true,
		args:      []any{v.After, ceilOf(v.Within), ceilOf(v.For), ceilOf(longest), ceilOf(quiet)},
	})
	p := allOfThese(limits...)
	return &penalty{allOfThese(append(p.limits, judge)...), p, v}
}

// ceilOf returns d in microseconds, rounded up, as far as a script can count.
func ceilOf(d time.Duration) int64 { return min(micros(wholeMicros(d)), maxWindow) }

// A penalty is AllOf of its limits and one more, which judges.
type penalty struct {
	*allOf
	inside   *allOf
	sentence throttle.Sentence
}

// punish returns the refusal of a claim that d is the answer to, were it not for a penalty
// that lasts so long. It waits for both.
func (l *limit) punish(d throttle.Decision, left time.Duration) throttle.Decision {
	if d.OK {
		d.Wait = 0
	}
	if left > d.Wait {
		d.Wait, d.Policy = left, l.policy
	}
	d.OK, d.Remaining = false, 0
	d.ResetAfter = max(d.ResetAfter, left)
	return d
}

// Share returns what Limiter.Share does, with penalties of each process's own.
func (p *penalty) Share(processes, maxKeys int) throttle.Limiter {
	v := p.sentence
	v.MaxKeys = maxKeys
	return throttle.NewPenalty(p.inside.Share(processes, maxKeys), v, p.store.Clock)
}
