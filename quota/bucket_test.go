package quota

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// Whoever only asks, as the Transport does before it sends again, changes nothing
// for those who come after: in no state of a quota.
func TestBucket_dryRunChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := func(left, reset string) func(*testing.T, *Tracker) {
			return func(t *testing.T, tr *Tracker) {
				ask(t, tr, users, answer(200, "RateLimit-Limit", "10", "RateLimit-Remaining", left, "RateLimit-Reset", reset))
			}
		}
		for name, prepare := range map[string]func(*testing.T, *Tracker){
			"unknown":              func(*testing.T, *Tracker) {},
			"told":                 told("5", "60"),
			"told, the last one":   told("1", "60"),
			"told, nothing left":   told("0", "60"),
			"told, window is over": func(t *testing.T, tr *Tracker) { told("0", "2")(t, tr); time.Sleep(3 * time.Second) },
			"shut":                 func(t *testing.T, tr *Tracker) { ask(t, tr, users, answer(429, "Retry-After", "10")) },
			"ajar": func(t *testing.T, tr *Tracker) {
				ask(t, tr, users, answer(429, "Retry-After", "1"))
				time.Sleep(3 * time.Second)
			},
			"rejected, without evidence": func(t *testing.T, tr *Tracker) {
				ask(t, tr, users, answer(200))
				ask(t, tr, users, answer(429))
			},
			"stopped": func(t *testing.T, tr *Tracker) { rejectUntilStopped(t, tr, users) },
			"paced": func(t *testing.T, tr *Tracker) {
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

// state returns all that b knows.
func (q *quota) state() []any {
	est := inference{}
	if q.inference != nil {
		est = *q.inference
	}
	return []any{q.inFlight.sent, q.inFlight.open, q.hold, est, q.span, append([]estimate(nil), q.estimates...), q.successes, q.lastGranted}
}

// After the reset everybody may ask whether the probe may go, and it may still go.
func TestBucket_askingDoesNotUseUpTheProbe(t *testing.T) {
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
		require.False(t, mayAsk(t, tr, users), "the probe is on its way")
	})
}
