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
	n = bytesOf(q.Estimates)
	if q.Learned != nil {
		n += model.LearnedBytes
	}
	if !reflect.ValueOf(&q.Quota).Elem().FieldByName("sends").IsNil() {
		n += statedlimit.LogBytes
	}
	for _, u := range q.units {
		n += u.bytes() + bytesOf(u.Estimates)
	}
	return n
}

func bytesOf(all []statedlimit.Estimate) (n int64) {
	for i := range all {
		n += model.EstimateBytes + int64(len(all[i].Name))
	}
	return n
}

// What no request has used for a while gives its memory to the quota of another route: small quotas, what the unknown quota has
// learned, and a quota with a learned rate.
func TestEndpoint_unusedStateGivesWay(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	rate := func(q *quota, bytes func(int64) bool) {
		q.Learned = new(model.Learned)
		q.Learned.Loop.BeginAt(throttle.CauseUnstated, 9, 0, now)
		require.True(t, bytes(model.LearnedBytes))
	}
	for name, fill := range map[string]func(ep *endpoint){
		"small quotas": func(ep *endpoint) {
			ep.small = &smallQuotas{began: now}
			for i := range uint64(40) {
				ep.addSmall(i, &smallQuota{endpoint: ep, name: i, limit: 9, remaining: 5}, now)
			}
		},
		"the unknown quota": func(ep *endpoint) { rate(ep.unknown.Load(), ep.Memory.Reserve) },
		"a learned rate": func(ep *endpoint) {
			q := ep.newQuota()
			require.True(t, ep.Memory.Reserve(quotaBytes))
			ep.quotas = append(ep.quotas, q)
			rate(q, ep.Memory.Reserve)
		},
	} {
		ep := (&Tracker{}).endpointOf(request(t, users))
		fill(ep)
		held := ep.Memory.Load()
		require.Equal(t, ep.held(), held, name)
		const other = model.MaxBytes - 300 // of other state, which is in use
		ep.Memory.Add(other - held)
		require.True(t, ep.evictQuotas(nil, now.Add(time.Hour)), name)
		require.True(t, ep.hasMemoryForQuota(nil), name)
		ep.Memory.Add(held - other)
		require.Equal(t, ep.held(), ep.Memory.Load(), name)
	}
}

// What the unknown quota knows stays while it is in use: nothing is left of the tokens that the server states. Small quotas that
// were used less recently give way first.
func TestEndpoint_unknownQuotaGivesWayInItsTurn(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		tokens int64 // left
		small  bool
		kept   bool
	}{
		"unused":                 {tokens: 5},
		"no token is left":       {kept: true},
		"small quotas are older": {tokens: 5, small: true, kept: true},
	} {
		tr := &Tracker{Clock: stopped(now)}
		req := request(t, users)
		d, tokens := tr.Demand(req), tr.DemandUnits(req, "tokens", 1)
		left := strconv.FormatInt(tt.tokens, 10)
		f := tr.Feedback(req, d, answer(200, "X-RateLimit-Limit-Tokens", "9", "X-RateLimit-Remaining-Tokens", left, "X-RateLimit-Reset-Tokens", "9h"), nil, now, nil)
		for _, demand := range []throttle.Demand{d, tokens} {
			dec, err := demand.Limiter.Reserve(t.Context(), throttle.Claim{Now: now})
			require.NoError(t, err)
			demand.Limiter.Report(t.Context(), throttle.Claim{}, dec, f)
		}
		ep := tr.endpointOf(req)
		unknown := ep.unknown.Load()
		require.Len(t, unknown.units, 1, name)
		if tt.small {
			ep.small = &smallQuotas{began: now.Add(-time.Hour)}
			for i := range uint64(60) {
				ep.addSmall(i, &smallQuota{endpoint: ep, name: i, limit: 9, remaining: 5}, now)
			}
		}
		held := ep.Memory.Load()
		const other = model.MaxBytes - 300
		ep.Memory.Add(other - held)
		require.Equal(t, tt.small, ep.evictQuotas(nil, now.Add(time.Hour)), name)
		require.Equal(t, tt.kept, ep.unknown.Load() == unknown, name)
	}
}

// The sets of similar routes take no memory that the limit of a new quota needs: without its limit, the quota would get all routes
// that are similar, and theirs would be tracked by none.
func TestEndpoint_similarRoutesLeaveMemoryForTheLimit(t *testing.T) {
	for free := range int64(300) {
		tr := &Tracker{}
		ep := tr.endpointOf(request(t, "https://api.test/a/b/c/d"))
		ep.Memory.Store(model.MaxBytes - quotaBytes - routeBytes - model.EstimateBytes - resetUnitBytes - int64(len("one")) - free)
		ask(t, tr, "https://api.test/a/b/c/d", answer(200, "RateLimit", `"one";r=5;t=9, "two";r=5;t=60`, "RateLimit-Policy", `"one";q=9;w=9, "two";q=99;w=60`))
		require.Len(t, ep.quotas, 1, free)
		require.NotEmpty(t, ep.quotas[0].Estimates, free)
	}
}
