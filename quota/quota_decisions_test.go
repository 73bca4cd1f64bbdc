package quota

import (
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A quota with limits in other units is not blank.
func TestQuota_isBlankWithoutUnits(t *testing.T) {
	q := quotaAt(t, 0)
	require.True(t, q.isBlank())
	q.units = []*unitQuota{{}}
	require.False(t, q.isBlank())
	_, idle := q.lastUse(time.Unix(1000, 0))
	require.True(t, idle)
	require.True(t, q.mu.TryLock(), "it is not locked afterwards")
}

// The quota that was used least recently is dropped first, if it is idle, and never the unknown one.
func TestEndpoint_dropsTheQuotaUsedLeastRecently(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		change func(ep *endpoint)
		gone   int // index of the quota; -1: none
	}{
		"the first":            {func(*endpoint) {}, 0},
		"the second is older":  {func(ep *endpoint) { ep.quotas[1].LastGranted = now.Add(-time.Hour) }, 1},
		"the last is older":    {func(ep *endpoint) { ep.quotas[maxQuotas-1].LastGranted = now.Add(-time.Hour) }, maxQuotas - 1},
		"the first is in use":  {func(ep *endpoint) { ep.quotas[0].InFlight.Open = 1 }, 1},
		"the first is unknown": {func(ep *endpoint) { ep.unknown.Store(ep.quotas[0]) }, 1},
		"none is idle": {func(ep *endpoint) {
			for _, q := range ep.quotas {
				q.InFlight.Open = 1
			}
		}, -1},
		"they are equally old": {func(ep *endpoint) {
			for _, q := range ep.quotas {
				q.LastGranted = now
			}
		}, 0},
		"there is still memory": {func(ep *endpoint) { ep.quotas = ep.quotas[:maxQuotas-1] }, maxQuotas},
	} {
		ep := (&Tracker{}).endpointOf(request(t, users))
		for i := range maxQuotas {
			q := ep.newQuota()
			q.LastGranted = now.Add(time.Duration(i) * time.Second)
			ep.Memory.Reserve(quotaBytes)
			ep.quotas = append(ep.quotas, q)
		}
		ep.Memory.Store(quotaBytes)
		tt.change(ep)
		all := append([]*quota(nil), ep.quotas...)
		require.Equal(t, tt.gone >= 0, ep.evictQuotas(nil, now), name)
		if tt.gone < 0 || tt.gone == maxQuotas {
			require.Equal(t, all, ep.quotas, name)
			continue
		}
		require.NotContains(t, ep.quotas, all[tt.gone], name)
		require.Len(t, ep.quotas, len(all)-1, name)
		require.True(t, all[tt.gone].Dropped, name)
		require.Zero(t, ep.Memory.Load(), name)
	}
}

// All memory that a quota has reserved is released with it.
func TestQuota_releasesItsMemory(t *testing.T) {
	q := quotaAt(t, 0)
	before := q.endpoint.Memory.Load()
	now := time.Unix(1_700_000_000, 0)
	u := q.inUnit("tokens")
	u.applyStated([]throttle.RemoteLimit{{Name: "a", Unit: "tokens", Limit: 9, Remaining: 3, ResetAfter: time.Minute}, {Name: "long", Unit: "tokens", Limit: 9, Remaining: 3, ResetAfter: time.Minute}}, now)
	q.applyStated([]throttle.RemoteLimit{{Name: "b", Limit: 9, Remaining: 3, ResetAfter: time.Minute}}, now)
	reserved := q.endpoint.Memory.Load() - before
	require.Equal(t, 3*model.EstimateBytes+6+u.bytes(), reserved)
	require.Equal(t, unitQuotaBytes+int64(len("tokens")+len("api.test: quota of tokens")), u.bytes())
	require.Equal(t, quotaBytes+reserved, q.drop())
	require.Nil(t, q.inUnit("tokens"), "a dropped quota learns nothing")
	stated := []throttle.RemoteLimit{{Name: "a", Unit: "tokens", Limit: 9, Remaining: 3, ResetAfter: time.Minute}, {Name: "b", Limit: 9, Remaining: 3, ResetAfter: time.Minute}}
	u.applyStated(stated, now)
	q.applyStated(stated, now)
	require.Empty(t, u.Estimates)
	require.Empty(t, q.Estimates)
}

// A rejection that states a limit which is used up concerns that limit. If it is not that of the quota that
// granted the request, that quota observes no rejection.
func TestEndpoint_rejectionsOfAnotherQuota(t *testing.T) {
	usedUp := []throttle.RemoteLimit{{Limit: 10, Remaining: 0, ResetAfter: time.Minute}}
	left := []throttle.RemoteLimit{{Limit: 10, Remaining: 1, ResetAfter: time.Minute}}
	for name, tt := range map[string]struct {
		outcome throttle.Outcome
		limits  []throttle.RemoteLimit
		want    throttle.Cause
	}{
		"rejected, used up":   {throttle.Throttled, usedUp, model.CauseOtherQuota},
		"rejected, some left": {throttle.Throttled, left, throttle.CauseStated},
		"accepted, used up":   {throttle.Accepted, usedUp, throttle.CauseStated},
	} {
		f := throttle.Feedback{Outcome: tt.outcome, Cause: throttle.CauseStated, RemoteLimits: tt.limits}
		concernsOther(&f)
		require.Equal(t, tt.want, f.Cause, name)
		require.Nil(t, f.RemoteLimits, name)
	}
}

// Limits that were stated to other requests do not end the window of an estimate.
func TestQuota_appliesWhatOthersLearned(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := quotaAt(t, 0)
	q.Estimates = []statedlimit.Estimate{{Limit: 10, Remaining: 3, At: now.Add(-time.Second), Reset: now.Add(time.Minute)}}
	q.applyStated([]throttle.RemoteLimit{{Limit: 10, Remaining: 5, ResetAfter: time.Minute}}, now)
	require.EqualValues(t, 3, q.Estimates[0].Remaining, "it may be the response to an older request")
}

// A Feedback without a time is as of now.
func TestQuota_observesAtTheTimeOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, of := range map[string]func(tr *Tracker) throttle.Limiter{
			"quota":      func(tr *Tracker) throttle.Limiter { return tr.Demand(request(t, users)).Limiter },
			"unit quota": func(tr *Tracker) throttle.Limiter { return tr.DemandUnits(request(t, users), "tokens", 1).Limiter },
		} {
			tr := seeded(1)
			l := of(tr)
			d, err := l.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			require.Equal(t, time.Now(), d.At, name)
			time.Sleep(time.Second)
			l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{RemoteLimits: []throttle.RemoteLimit{
				{Limit: 10, Remaining: 5, ResetAfter: time.Minute}, {Unit: "tokens", Limit: 10, Remaining: 5, ResetAfter: time.Minute},
			}})
			limits := tr.Snapshot(0).Shown[0].Quotas[0].Limits
			require.Len(t, limits, 1, name)
			require.Equal(t, time.Now().Add(time.Minute), limits[0].Reset, name)
		}
	})
}

// A claim that was not sent is not in flight.
func TestQuota_cancelledClaimsAreNotInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := quotaAt(t, 0)
		d, err := q.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		q.Report(t.Context(), throttle.Claim{}, throttle.Decision{Grant: 1}, throttle.Feedback{State: throttle.Unused})
		require.EqualValues(t, 1, q.InFlight.Open, "it was not granted")
		q.Report(t.Context(), throttle.Claim{Cost: -1}, d, throttle.Feedback{State: throttle.Unused})
		require.EqualValues(t, 1, q.InFlight.Open, "no such claim")
		q.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
		require.Zero(t, q.InFlight.Open)
	})
}

// Providers have rows in a table whatever the Mode is: GitHub rejects with a 403.
func TestTracker_classifiesByProvider(t *testing.T) {
	for name, tr := range map[string]*Tracker{"full": {}, "disabled": {Mode: Disabled}, "stated only": {Mode: StatedOnly}} {
		req := request(t, "https://api.github.com/users")
		f := tr.Feedback(req, tr.Demand(req), answer(http.StatusForbidden, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1700000060"), nil, time.Unix(1_700_000_000, 0), nil)
		require.Equal(t, throttle.Throttled, f.Outcome, name)
		req = request(t, "https://api.test/users")
		f = tr.Feedback(req, tr.Demand(req), answer(http.StatusForbidden, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1700000060"), nil, time.Unix(1_700_000_000, 0), nil)
		require.Equal(t, throttle.Accepted, f.Outcome, name)
	}
}

// A renewing is a queue that records for which limiters it was renewed.
type renewing struct{ limiters []throttle.Limiter }

func (*renewing) Wake()                      {}
func (r *renewing) Renew(l throttle.Limiter) { r.limiters = append(r.limiters, l) }

// Requests that wait for the unknown quota are renewed when it becomes that of a route, once.
func TestTracker_renewsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, r := seeded(1), &renewing{}
		tr.Notify(r)
		before := tr.Demand(request(t, users)).Limiter
		ask(t, tr, users, answer(200))
		require.Empty(t, r.limiters)
		ask(t, tr, users, answer(200, "RateLimit-Limit", "10", "RateLimit-Remaining", "5", "RateLimit-Reset", "60"))
		require.NotEmpty(t, r.limiters)
		require.Same(t, before, r.limiters[0])
		r.limiters = nil
		ask(t, tr, users, answer(200, "RateLimit-Limit", "10", "RateLimit-Remaining", "4", "RateLimit-Reset", "60"))
		require.Empty(t, r.limiters, "its quota is known")
		ep := endpointIn(tr)
		require.False(t, ep.hasReplaced.Load())
		require.Empty(t, ep.replaced)
	})
}

// All Events that were registered are called, in the order of registration, until they are collected.
func TestTracker_callsAllEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		var got []int
		events := make([]*Events, 3)
		for i := range events {
			events[i] = &Events{LimitLearned: func(LimitLearnedInfo) { got = append(got, i) }}
			tr.Listen(events[i])
		}
		ask(t, tr, users, answer(200, "RateLimit-Limit", "10", "RateLimit-Remaining", "5", "RateLimit-Reset", "60"))
		require.Equal(t, []int{0, 1, 2}, got)
		l := tr.listeners.Load()
		require.False(t, l.waiting.Load())
		require.Empty(t, l.pending)
		got = nil
		ask(t, tr, users, answer(200, "RateLimit-Limit", "10", "RateLimit-Remaining", "4", "RateLimit-Reset", "60"))
		require.Empty(t, got, "the limit is known")
		runtime.KeepAlive(events)
	})
	var l listeners
	for range maxPending + 5 {
		l.add(HoldInfo{})
	}
	require.Len(t, l.pending, maxPending)
}

// Holds and limits are reported when they begin, change and end. The learned rate is reported when it
// changes by more than a hundredth.
func TestListeners_reportChanges(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	hold := func(limit string, held bool, after time.Duration, estimated bool) HoldInfo {
		return HoldInfo{Host: "api.test", Limit: "api.test: " + limit, Held: held, For: after, Estimated: estimated}
	}
	rate := func(c Change, r float64) LimitLearnedInfo {
		return LimitLearnedInfo{Host: "api.test", Limit: "api.test: learned rate", Change: c, Rate: r}
	}
	loop := func(r float64) learnedlimit.RateLoop {
		return learnedlimit.RateLoop{Cause: throttle.CauseUnstated, Rate: 1, Goal: r}
	}
	for name, tt := range map[string]struct {
		before, after func(q *quota)
		want          []any
	}{
		"nothing":                      {nil, nil, nil},
		"a hold begins":                {nil, func(q *quota) { q.Hold.Held, q.Hold.Until = true, in(time.Second) }, []any{hold("retry-after", true, time.Second, false)}},
		"a stop begins":                {nil, func(q *quota) { q.Hold.Held = true }, []any{hold("learned rate", true, 0, true)}},
		"a hold ends now":              {nil, func(q *quota) { q.Hold.Held, q.Hold.Until = true, now }, []any{hold("retry-after", true, 0, false)}},
		"a hold is extended":           {func(q *quota) { q.Hold.Held, q.Hold.Until = true, in(1) }, func(q *quota) { q.Hold.Until = in(time.Second + 2) }, []any{hold("retry-after", true, time.Second+2, false)}},
		"a hold is extended by little": {func(q *quota) { q.Hold.Held, q.Hold.Until = true, in(1) }, func(q *quota) { q.Hold.Until = in(time.Second + 1) }, nil},
		"a hold ends":                  {func(q *quota) { q.Hold.Held, q.Hold.Until = true, in(1) }, func(q *quota) { q.Hold.Held = false }, []any{hold("retry-after", false, 0, false)}},
		"a stop ends":                  {func(q *quota) { q.Hold.Held = true }, func(q *quota) { q.Hold.Held = false }, []any{hold("learned rate", false, 0, true)}},
		"a rate":                       {nil, func(q *quota) { q.Learned.Loop = loop(100) }, []any{rate(Learned, 100)}},
		"a rate changes":               {func(q *quota) { q.Learned.Loop = loop(100) }, func(q *quota) { q.Learned.Loop = loop(101.1) }, []any{rate(Changed, 101.1)}},
		"a rate changes by 1 %":        {func(q *quota) { q.Learned.Loop = loop(100) }, func(q *quota) { q.Learned.Loop = loop(101) }, nil},
		"a rate becomes 1 % lower":     {func(q *quota) { q.Learned.Loop = loop(100) }, func(q *quota) { q.Learned.Loop = loop(99) }, nil},
		"a low rate, almost the same":  {func(q *quota) { q.Learned.Loop = loop(.5) }, func(q *quota) { q.Learned.Loop = loop(.504) }, nil},
		"a rate becomes lower":         {func(q *quota) { q.Learned.Loop = loop(100) }, func(q *quota) { q.Learned.Loop = loop(98.9) }, []any{rate(Changed, 98.9)}},
		"a rate is dropped":            {func(q *quota) { q.Learned.Loop = loop(100) }, func(q *quota) { q.Learned.Loop = learnedlimit.RateLoop{} }, []any{rate(Dropped, 100)}},
		"a limit is not obeyed": {func(q *quota) {
			q.Estimates = make([]statedlimit.Estimate, 1)
			q.Estimates[0].Update(throttle.RemoteLimit{Limit: 9, ResetAfter: time.Hour}, 0, now, &inflight.Claims{})
		}, func(q *quota) {
			q.Estimates[0].Accepted(1, true, now) // a contradiction
		},
			[]any{LimitLearnedInfo{Host: "api.test", Limit: "api.test: quota", Change: Dropped, Size: 9}}},
		"one of two limits changes": {func(q *quota) { q.Estimates = []statedlimit.Estimate{{Limit: 9}, {Limit: 99, Per: time.Minute}} }, func(q *quota) { q.Estimates[0].Limit = 8 },
			[]any{LimitLearnedInfo{Host: "api.test", Limit: "api.test: quota", Change: Changed, Size: 8}}},
		"a window": {func(q *quota) { q.Learned.Loop = loop(100) }, func(q *quota) {
			q.Learned.Loop, q.Learned.Window = learnedlimit.RateLoop{}, learnedlimit.Window{Limit: 9, ConfirmedLimit: 10, Length: time.Minute}
		}, []any{rate(Dropped, 100), LimitLearnedInfo{Host: "api.test", Limit: "api.test: learned rate", Size: 10, Per: time.Minute}}},
		"a window becomes longer": {func(q *quota) {
			q.Learned.Window = learnedlimit.Window{Limit: 9, ConfirmedLimit: 10, Length: time.Minute}
		}, func(q *quota) { q.Learned.Window.Length = time.Hour },
			[]any{LimitLearnedInfo{Host: "api.test", Limit: "api.test: learned rate", Change: Changed, Size: 10, Per: time.Hour}}},
		"a declared window": {nil, func(q *quota) { q.Learned.Window = learnedlimit.Window{Limit: 9, Declared: true} }, nil},
	} {
		q := quotaAt(t, 0)
		q.Learned = new(model.Learned)
		if tt.before != nil {
			tt.before(q)
		}
		var l listeners
		before := q.reported(now)
		if tt.after != nil {
			tt.after(q)
		}
		l.record(before, now)
		require.Equal(t, tt.want, l.pending, name)
	}
}

// Which limits are one limit before and after a change.
func TestLimitLearnedInfo_isSame(t *testing.T) {
	a := LimitLearnedInfo{Limit: "h: quota", Name: "a", Size: 10, Per: time.Minute}
	learned := LimitLearnedInfo{Limit: "h: learned rate", Size: 10, Per: time.Minute}
	change := func(l LimitLearnedInfo, f func(*LimitLearnedInfo)) LimitLearnedInfo { f(&l); return l }
	for name, tt := range map[string]struct {
		a, b LimitLearnedInfo
		want bool
	}{
		"size":             {a, change(a, func(l *LimitLearnedInfo) { l.Size = 9 }), true},
		"name":             {a, change(a, func(l *LimitLearnedInfo) { l.Name = "b" }), false},
		"limit":            {a, change(a, func(l *LimitLearnedInfo) { l.Limit = "h: retry-after" }), false},
		"window":           {a, change(a, func(l *LimitLearnedInfo) { l.Per = time.Hour }), false},
		"learned window":   {learned, change(learned, func(l *LimitLearnedInfo) { l.Per = time.Hour }), true},
		"a rate":           {learned, change(learned, func(l *LimitLearnedInfo) { l.Rate = 1 }), false},
		"the limit and it": {change(learned, func(l *LimitLearnedInfo) { l.Name = "a" }), a, false},
	} {
		require.Equal(t, tt.want, tt.a.isSame(tt.b), name)
		require.Equal(t, tt.want, tt.b.isSame(tt.a), name)
	}
}

// A route of a set whose routes show a quota is likely to have it: if the set is a pattern, responses may be
// as late as in the last seconds.
func TestEndpoint_quotaOfSimilarRoutes(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		shown int
		left  int64 // 50 are left of 100; a tenth of it and two may differ
		want  bool
	}{
		"a pattern":                       {3, 50, true},
		"a pattern, responses are late":   {3, 82, true},
		"a pattern, later":                {3, 83, false},
		"no pattern yet":                  {2, 62, true},
		"no pattern, responses are early": {2, 63, false},
	} {
		req := request(t, "https://api.test/pages/about")
		ep := (&Tracker{}).endpointOf(req)
		q := ep.unknown.Load()
		q.Estimates = []statedlimit.Estimate{windowEstimate(now)}
		for i := range tt.shown {
			ep.patterns.Record(ep.tracker.seed, request(t, "https://api.test/pages/"+slug(i)), uint64(i), q, true, ep.Memory.Reserve)
		}
		ep.peak = 20
		got := ep.quotaOfSimilar(req, []throttle.RemoteLimit{{Limit: 100, Remaining: tt.left, ResetAfter: time.Minute, Per: 2 * time.Minute}}, 0, now)
		require.Equal(t, tt.want, got == q, name)
		require.Nil(t, ep.quotaOfSimilar(nil, nil, 0, now), "the request of another process")
	}
}

// A claim of more than the limit of a small quota is granted when the limit is.
func TestSmallQuota_admitsClaimsOfMoreThanTheLimit(t *testing.T) {
	ep := (&Tracker{}).endpointOf(request(t, users))
	now := time.Unix(1_700_000_000, 0)
	ep.small = &smallQuotas{began: now}
	for limit, left := range map[int32]int32{1: 1, 3: 3} {
		q := &smallQuota{endpoint: ep, name: 1, limit: limit, remaining: left, reset: time.Minute}
		d, err := q.Reserve(t.Context(), throttle.Claim{Cost: 5, Now: now})
		require.NoError(t, err)
		require.True(t, d.OK)
		d, err = q.Reserve(t.Context(), throttle.Claim{Cost: 5, Now: now})
		require.NoError(t, err)
		require.False(t, d.OK, "one is in flight")
	}
}

// Waiting requests are woken by updates after which they may be sent earlier, and by no others.
func TestSharing_wakesOnlyWaitsThatMayEnd(t *testing.T) {
	tr, q, _ := sharedQuota(t, .5)
	w := &countingWaker{}
	tr.Notify(w)
	route := q.endpoint.route(request(t, users))
	for i, u := range []Update{
		{Kind: UpdateJoin},
		{Kind: UpdateHold, Stated: true, Wait: time.Minute},
		{Kind: UpdateProbe},
	} {
		u.Sender, u.Account, u.Route = 1, q.endpoint.id, route
		tr.sharing.receive(u)
		require.Zero(t, w.woken, i)
	}
	tr.sharing.receive(Update{Kind: UpdateLimits, Sender: 1, Account: q.endpoint.id, Route: route, Limits: []throttle.RemoteLimit{{Limit: 10, Remaining: 7, ResetAfter: time.Minute}}})
	require.Equal(t, 1, w.woken, "a window may have begun")
}

// When a host begins to have small quotas, requests that wait for the unknown one are renewed: theirs may be
// a small one.
func TestEndpoint_renewsWaitsForSmallQuotas(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	ep := (&Tracker{}).endpointOf(request(t, users))
	limits := []throttle.RemoteLimit{{Name: "a", Limit: 10, Remaining: 7, ResetAfter: time.Minute}}
	require.False(t, ep.assignSmall(7, limits, now), "there is memory for a quota")
	require.Nil(t, ep.small)
	ep.Memory.Store(model.MaxBytes - ep.quotaBytes() - routeBytes - model.EstimateBytes + 1)
	require.True(t, ep.assignSmall(7, limits, now))
	require.Equal(t, []throttle.Limiter{ep.unknown.Load()}, ep.replaced)
	require.True(t, ep.hasReplaced.Load())
	first := ep.small.find(7)
	require.True(t, ep.assignSmall(8, limits, now))
	require.Same(t, first, ep.small.find(8), "the limit has the same name")
	require.Len(t, ep.replaced, 1)
	limits[0].Name = "b"
	require.True(t, ep.assignSmall(8, limits, now))
	require.NotSame(t, first, ep.small.find(8))
	require.Equal(t, []throttle.Limiter{ep.unknown.Load(), first}, ep.replaced, "the route has another quota")
}
