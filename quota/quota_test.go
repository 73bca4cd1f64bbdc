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
	learned := model.Learned{}
	if q.Learned != nil {
		learned = *q.Learned
	}
	return []any{q.InFlight.Sent, q.InFlight.Open, q.Hold, learned, q.Span, append([]statedlimit.Estimate(nil), q.Estimates...), q.Ramp, q.Overload, q.NextTest(), q.Testing(), q.LastGranted}
}

// quotaAt returns the unknown quota of a new host, of a Tracker whose random numbers are all random.
func quotaAt(t *testing.T, random float64) *quota {
	tr := &Tracker{Rand: func() float64 { return random }}
	return tr.endpointOf(request(t, users)).unknown.Load()
}
