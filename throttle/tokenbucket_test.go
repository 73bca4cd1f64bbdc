package throttle

import (
	"testing"
	"time"
)

type step struct {
	at   time.Duration
	cost int64
	ok   bool
	wait time.Duration
	left int64
}

func TestTokenBucket(t *testing.T) {
	t0 := time.Unix(0, 0)
	for name, tt := range map[string]struct {
		limit Limit
		steps []step
	}{
		"rejected claims take nothing": {Limit{Count: 1, Per: time.Second, Burst: 3}, []step{
			{at: 0, cost: 2, ok: true, left: 1},
			{at: 0, cost: 2, wait: time.Second, left: 1},
			{at: time.Second, cost: 2, ok: true, left: 0},
			{at: time.Second, cost: 4, wait: Forever, left: 0},
		}},
		"thirds of a second are exact": {Limit{Count: 3, Per: time.Second, Burst: 1}, []step{
			{at: 0, cost: 1, ok: true},
			{at: 333333333, cost: 1, wait: 1},
			{at: 333333334, cost: 1, ok: true},
			{at: 2 * time.Second / 3, cost: 1, wait: 2},
			{at: 2*time.Second/3 + 2, cost: 1, ok: true},
		}},
		"an older reading counts as the newest": {Limit{Count: 1, Per: time.Second, Burst: 2}, []step{
			{at: 5 * time.Second, cost: 2, ok: true},
			{at: 4 * time.Second, cost: 1, wait: time.Second},
			{at: 5500 * time.Millisecond, cost: 1, wait: 500 * time.Millisecond},
			{at: 6 * time.Second, cost: 1, ok: true},
		}},
		"a leap of years, and back": {Limit{Count: 7919, Per: time.Second, Burst: 2}, []step{
			{at: 0, cost: 2, ok: true},
			{at: 100 * 365 * 24 * time.Hour, cost: 2, ok: true},
			{at: 0, cost: 1, wait: 126279 * time.Nanosecond},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newToken(tt.limit)
			for i, s := range tt.steps {
				d, err := b.Reserve(t.Context(), Claim{Cost: s.cost, Now: t0.Add(s.at)})
				if err != nil || d.OK != s.ok || d.Wait != s.wait || d.Remaining != s.left {
					t.Errorf("step %d: %+v, %v; want %+v", i, d, err, s)
				}
			}
		})
	}
}
