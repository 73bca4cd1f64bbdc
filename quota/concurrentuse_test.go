package quota

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// Requests of many routes, accounts, names and units are sent, canceled and forgotten by several goroutines, with any
// response. The race detector finds no conflict, and no count is negative afterwards.
func TestTracker_isSafeForConcurrentUse(t *testing.T) {
	tr := seeded(1)
	var users sync.WaitGroup
	for g := range 8 {
		users.Go(func() {
			r := random(uint64(g))
			for range 2000 {
				if err := anyRequest(t, tr, r); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	users.Wait()
	shown := tr.Snapshot(1000).Shown
	require.NotEmpty(t, shown)
	for _, a := range shown {
		for _, q := range a.Quotas {
			require.GreaterOrEqual(t, q.InFlight, 0, q.Name)
			for _, l := range q.Limits {
				require.GreaterOrEqual(t, l.Remaining, int64(0), q.Name)
			}
		}
	}
}

// anyRequest sends a random request of tr.
func anyRequest(t *testing.T, tr *Tracker, r *rand.Rand) error {
	word := func(n int) string { return fmt.Sprintf("%c%ctype", 'a'+r.IntN(n)/10, 'a'+r.IntN(10)) }
	ctx := t.Context()
	if r.IntN(5) == 0 {
		ctx = WithName(ctx, word(30))
	}
	method := []string{http.MethodGet, http.MethodPost}[r.IntN(2)]
	req, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://h%d.test/%s/%s", r.IntN(3), word(200), word(10)), http.NoBody)
	if err != nil {
		return err
	}
	if r.IntN(10) == 0 {
		req.Header.Set("Authorization", fmt.Sprint("Bearer ", r.IntN(5000)))
	}
	d := tr.Demand(req)
	var decision throttle.Decision
	if d.Limiter != nil {
		if decision, err = d.Limiter.Reserve(ctx, throttle.Claim{}); err != nil {
			return err
		}
	}
	units := tr.DemandUnits(req, "tokens", r.Int64N(100))
	var unitDecision throttle.Decision
	if units.Limiter != nil {
		if unitDecision, err = units.Limiter.Reserve(ctx, throttle.Claim{Cost: units.Cost}); err != nil {
			return err
		}
	}
	if r.IntN(20) == 0 {
		if d.Limiter != nil {
			d.Limiter.Report(ctx, throttle.Claim{}, decision, throttle.Feedback{State: throttle.Unused})
		}
		if units.Limiter != nil {
			units.Limiter.Report(ctx, throttle.Claim{Cost: units.Cost}, unitDecision, throttle.Feedback{State: throttle.Unused})
		}
		return nil
	}
	f := tr.Feedback(req, d, anyResponse(r, word(60)), nil, time.Now(), nil)
	if d.Limiter != nil {
		d.Limiter.Report(ctx, throttle.Claim{}, decision, f)
	}
	if units.Limiter != nil {
		units.Limiter.Report(ctx, throttle.Claim{Cost: units.Cost}, unitDecision, f)
	}
	switch r.IntN(400) {
	case 0:
		tr.Forget(req)
	case 1:
		tr.Snapshot(1000)
	}
	return nil
}

// anyResponse returns a response with any statements, about the quota bucket if about one.
func anyResponse(r *rand.Rand, bucket string) *http.Response {
	resp := answer([]int{200, 200, 200, 200, 429, 503, 403, 500}[r.IntN(8)])
	number := func(n int) string { return strconv.Itoa(r.IntN(n)) }
	if r.IntN(2) == 0 {
		resp.Header.Set("X-RateLimit-Bucket", bucket)
		resp.Header.Set("X-RateLimit-Limit", "1000")
		resp.Header.Set("X-RateLimit-Remaining", number(1000))
		resp.Header.Set("X-RateLimit-Reset", number(5))
	}
	if r.IntN(4) == 0 {
		resp.Header.Set("X-RateLimit-Limit-Tokens", "1000")
		resp.Header.Set("X-RateLimit-Remaining-Tokens", number(1000))
	}
	if r.IntN(20) == 0 {
		resp.Header.Set("Retry-After", number(2))
	}
	return resp
}
