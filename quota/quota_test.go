package quota

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A dry run, as the Transport makes it before it retries, does not change the state of a quota.
func TestQuota_dryRunChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stated := func(left, reset string) func(*testing.T, *Tracker) {
			return func(t *testing.T, tr *Tracker) {
				ask(t, tr, users, answer(200, "RateLimit-Limit", "10", "RateLimit-Remaining", left, "RateLimit-Reset", reset))
			}
		}
		for name, prepare := range map[string]func(*testing.T, *Tracker){
			"unknown":        func(*testing.T, *Tracker) {},
			"limit stated":   stated("5", "60"),
			"one left":       stated("1", "60"),
			"nothing left":   stated("0", "60"),
			"window is over": func(t *testing.T, tr *Tracker) { stated("0", "2")(t, tr); time.Sleep(3 * time.Second) },
			"held":           func(t *testing.T, tr *Tracker) { ask(t, tr, users, answer(429, "Retry-After", "10")) },
			"probe is due": func(t *testing.T, tr *Tracker) {
				ask(t, tr, users, answer(429, "Retry-After", "1"))
				time.Sleep(3 * time.Second)
			},
			"rejected, without evidence": func(t *testing.T, tr *Tracker) {
				ask(t, tr, users, answer(200))
				ask(t, tr, users, answer(429))
			},
			"stopped": func(t *testing.T, tr *Tracker) { rejectUntilStopped(t, tr, users) },
			"learned rate": func(t *testing.T, tr *Tracker) {
				rejectUntilStopped(t, tr, users)
				time.Sleep(3 * time.Second)
				ask(t, tr, users, answer(200))
			},
		} {
			tr := seeded(1)
			prepare(t, tr)
			q := tr.Demand(request(t, users)).Limiter.(*quota)
			before := q.state()
			for range 3 {
				_, err := q.Reserve(t.Context(), throttle.Claim{DryRun: true})
				require.NoError(t, err)
			}
			require.True(t, reflect.DeepEqual(before, q.state()), "%s: %+v became %+v", name, before, q.state())
		}
	})
}

// state returns the state of q that a dry run could change.
func (q *quota) state() []any {
	inf := model.Inference{}
	if q.Inference != nil {
		inf = *q.Inference
	}
	return []any{q.InFlight.Sent, q.InFlight.Open, q.Hold, inf, q.Span, append([]statedlimit.Estimate(nil), q.Estimates...), q.SlowStart, q.LastGranted}
}

// After the reset, dry runs are granted until a claim is granted: the probe.
func TestQuota_dryRunDoesNotUseUpTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		ask(t, tr, users, answer(200, "RateLimit-Limit", "10", "RateLimit-Remaining", "0", "RateLimit-Reset", "2"))
		time.Sleep(3 * time.Second)
		for range 5 {
			require.True(t, mayAsk(t, tr, users))
		}
		d, err := tr.Demand(request(t, users)).Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.True(t, d.OK)
		require.False(t, mayAsk(t, tr, users), "the probe is in flight")
	})
}
