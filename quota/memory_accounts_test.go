package quota

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// Whatever a server states of whichever routes, the bytes that an account has reserved are those of its quotas, their
// estimates, units, routes and patterns, and never more than its budget.
func TestEndpoint_accountsForItsMemory(t *testing.T) {
	type claim struct {
		req *http.Request
		d   throttle.Demand
		c   throttle.Claim
		dec throttle.Decision
	}
	var most int64
	quotas, smalls, units := 0, 0, 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 5))
		tr := seeded(seed)
		tr.Mode = []Mode{StatedOnly, Full}[r.IntN(2)]
		if r.IntN(3) == 0 {
			tr.Exchange = newExchange(silentBus{}, [][]byte{nil, []byte("secret of all processes")}[r.IntN(2)], nil)
		}
		declares := r.IntN(3) == 0
		if declares {
			require.NoError(t, tr.Declare("api.test", throttle.PerMinute(600)))
		}
		now, named, names := time.Unix(1_700_000_000, 0), r.IntN(2) > 0, 1+r.IntN(200)
		var open []claim
		var ep *endpoint
		var unknown *quota
		for range 1500 {
			now = now.Add(time.Duration(r.ExpFloat64() * float64(time.Second)))
			if r.IntN(200) == 0 {
				now = now.Add(-2 * setBack)
			}
			if r.IntN(3) > 0 || len(open) == 0 {
				req := request(t, fmt.Sprintf("https://api.test/%s/list%s", slug(r.IntN(4)), slug(r.IntN(1+int(seed)*3))))
				if named && r.IntN(4) == 0 {
					req = req.WithContext(WithName(req.Context(), strconv.Itoa(r.IntN(30))))
				}
				d := tr.Demand(req)
				if r.IntN(8) == 0 {
					if d = tr.DemandUnits(req, "unit"+strconv.Itoa(r.IntN(12)), 5); d.Limiter == nil {
						continue
					}
				}
				c := throttle.Claim{Now: now, Cost: d.Cost}
				if dec, err := d.Limiter.Reserve(t.Context(), c); err == nil && dec.OK {
					open = append(open, claim{req, d, c, dec})
				}
			} else {
				k := r.IntN(len(open))
				o := open[k]
				open = append(open[:k], open[k+1:]...)
				f := throttle.Feedback{State: throttle.Unused, Now: now}
				if r.IntN(10) > 0 {
					resp := answer([]int{200, 200, 200, 429, 503, 500}[r.IntN(6)])
					if r.IntN(3) > 0 {
						name := fmt.Sprintf(`"name%d"`, r.IntN(names))
						left := r.IntN(20)
						resp.Header["Ratelimit"] = []string{fmt.Sprintf("%s;r=%d;t=%d", name, left, r.IntN(3))}
						resp.Header["Ratelimit-Policy"] = []string{name + ";q=20;w=2" + []string{"", `;qu="unit1"`}[r.IntN(5)/4]}
					}
					f = tr.Feedback(o.req, o.d, resp, nil, now, nil)
				}
				o.d.Limiter.Report(t.Context(), o.c, o.dec, f)
			}
			ep = endpointIn(tr)
			want, held := ep.held(), ep.Memory.Load()
			require.Equal(t, want, held, "seed %d", seed)
			require.LessOrEqual(t, held, int64(model.MaxBytes), "seed %d", seed)
			most = max(most, held)
			if u := ep.unknown.Load(); u != unknown {
				unknown = u
				require.Equal(t, declares, u.Learned != nil, "seed %d: a new quota has the declared limit", seed)
			}
		}
		quotas = max(quotas, len(ep.quotas))
		if ep.small != nil {
			smalls++
		}
		for _, q := range ep.all() {
			units = max(units, len(q.units))
		}
		for len(ep.quotas) > 0 {
			ep.drop(0)
		}
		require.Equal(t, ep.held(), ep.Memory.Load(), "seed %d: its quotas are dropped", seed)
	}
	require.Greater(t, most, int64(model.MaxBytes*9/10))
	require.Greater(t, quotas, 4)
	require.NotZero(t, smalls)
	require.Greater(t, units, 3)
}

// held returns the number of bytes that what ep holds accounts for.
func (ep *endpoint) held() (n int64) {
	n = int64(len(ep.routes))*routeBytes + ep.patterns.Bytes()
	if u := ep.resetUnit.Load(); u != nil && u != countsSeconds {
		n += resetUnitBytes
	}
	if ep.small != nil {
		n += int64(len(ep.small.routes)) * smallBytes
	}
	for _, q := range ep.all() {
		n += q.held()
	}
	for _, q := range ep.quotas {
		n += quotaBytes
		if q.shared != nil {
			n += sharedBytes
		}
	}
	return n
}

// held returns the number of bytes that what q has learned accounts for, without q itself.
func (q *quota) held() (n int64) {
	n = estimateBytes(q.Estimates)
	if q.Learned != nil {
		n += model.DeclaredBytes
	}
	if !reflect.ValueOf(&q.Quota).Elem().FieldByName("sends").IsNil() {
		n += statedlimit.LogBytes
	}
	for _, u := range q.units {
		n += u.bytes() + estimateBytes(u.Estimates)
	}
	return n
}

func estimateBytes(all []statedlimit.Estimate) (n int64) {
	for i := range all {
		n += model.EstimateBytes + int64(len(all[i].Name))
		if all[i].HasLog() {
			n += statedlimit.LogBytes
		}
	}
	return n
}
