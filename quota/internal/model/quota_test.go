package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A decision describes the limit with the fewest units left, less those of claims in flight.
func TestQuota_describesTheLimitWithTheFewestUnits(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		estimates []statedlimit.Estimate
		open      int64
		want      throttle.Decision
	}{
		"one":              {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now.Add(time.Minute)}}, 1, throttle.Decision{Limit: 10, Remaining: 3, ResetAfter: time.Minute}},
		"none left":        {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now.Add(time.Minute)}}, 5, throttle.Decision{Limit: 10, ResetAfter: time.Minute}},
		"just none left":   {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now.Add(time.Minute)}}, 4, throttle.Decision{Limit: 10, ResetAfter: time.Minute}},
		"the reset is now": {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now}}, 0, throttle.Decision{Limit: 10, Remaining: 4}},
		"it is over":       {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now.Add(-time.Hour)}}, 0, throttle.Decision{Limit: 10, Remaining: 4}},
		"a limit of none":  {[]statedlimit.Estimate{{Reset: now}}, 0, throttle.Decision{Limit: 1}},
		"the second":       {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now}, {Limit: 9, Remaining: 3, Reset: now}}, 0, throttle.Decision{Limit: 9, Remaining: 3}},
		"the first":        {[]statedlimit.Estimate{{Limit: 10, Remaining: 3, Reset: now}, {Limit: 9, Remaining: 4, Reset: now}}, 0, throttle.Decision{Limit: 10, Remaining: 3}},
		"of two, either":   {[]statedlimit.Estimate{{Limit: 10, Remaining: 3, Reset: now}, {Limit: 9, Remaining: 3, Reset: now}}, 0, throttle.Decision{Limit: 10, Remaining: 3}},
	} {
		q := modelAt(0)
		q.Estimates, q.InFlight.Open = tt.estimates, tt.open
		var d throttle.Decision
		q.describe(&d, now)
		require.Equal(t, tt.want, d, name)
	}
}

// A quota is blank if it knows nothing that would be lost with it, idle if it admits all requests and none
// is in flight.
func TestQuota_isBlankOrIdle(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	learned := func(l Learned) func(q *Quota) { return func(q *Quota) { q.Learned = &l } }
	var loop learnedlimit.RateLoop
	loop.BeginAt(throttle.CauseUnstated, 9, 0, now)
	for name, tt := range map[string]struct {
		change      func(q *Quota)
		blank, idle bool
	}{
		"new":                            {func(*Quota) {}, true, true},
		"a request is in flight":         {func(q *Quota) { q.InFlight.Open = 1 }, false, false},
		"a limit":                        {func(q *Quota) { q.Estimates = []statedlimit.Estimate{{Remaining: 1, Reset: in(1)}} }, false, true},
		"a limit that is used up":        {func(q *Quota) { q.Estimates = []statedlimit.Estimate{{Remaining: 1}, {Reset: in(1)}} }, false, false},
		"that has reset":                 {func(q *Quota) { q.Estimates = []statedlimit.Estimate{{Reset: now}} }, false, true},
		"a hold":                         {func(q *Quota) { q.Hold = hold.Hold{Held: true, Until: in(1)} }, false, false},
		"a hold without an end":          {func(q *Quota) { q.Hold = hold.Hold{Held: true, Latest: in(1 - staleAfter)} }, false, false},
		"a hold that was not tested":     {func(q *Quota) { q.Hold = hold.Hold{Held: true, Latest: in(-staleAfter), Until: in(-staleAfter)} }, false, true},
		"a rejection":                    {func(q *Quota) { q.Hold = hold.Hold{Suspected: true, Latest: now} }, true, true},
		"something was learned":          {learned(Learned{}), false, true},
		"a rate":                         {learned(Learned{Loop: loop}), false, false},
		"a rate that no request uses":    {func(q *Quota) { q.Learned, q.LastGranted = &Learned{Loop: loop}, in(-staleAfter) }, false, true},
		"a window":                       {learned(Learned{Window: learnedlimit.Window{Limit: 9, Reset: in(1)}}), false, false},
		"a window that is over":          {learned(Learned{Window: learnedlimit.Window{Limit: 9, Reset: now}}), false, true},
		"the reset of no learned window": {learned(Learned{Window: learnedlimit.Window{Reset: in(1)}}), false, true},
	} {
		q := modelAt(0)
		q.LastGranted = in(-time.Minute)
		tt.change(q)
		require.Equal(t, tt.blank, q.IsBlank(), name)
		used, idle := q.LastUse(now)
		require.Equal(t, tt.idle, idle, name)
		require.Equal(t, q.LastGranted, used, name)
	}
}

// A response concerns another quota if none of the limits that it states has the name of one that is known.
func TestQuota_statesOtherLimits(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		names []string
		want  bool
	}{"no limits": {nil, false}, "the same": {[]string{"a"}, false}, "another one": {[]string{"b"}, true}, "others": {[]string{"b", "c"}, true}, "one is the same": {[]string{"b", "a"}, false}} {
		q := modelAt(0)
		for _, n := range tt.names {
			q.Estimates = append(q.Estimates, statedlimit.Estimate{Name: n, Limit: 10, Reset: now})
		}
		require.Equal(t, tt.want, q.StatesOther([]throttle.RemoteLimit{{Name: "a", Limit: 10}}), name)
	}
}

// A quota of which nothing is known may have any limits. One with a hold or with something learned has been used.
func TestQuota_aNewQuotaMayHaveAnyLimits(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		change func(q *Quota)
		may    bool
	}{
		"new":                   {func(*Quota) {}, true},
		"a hold":                {func(q *Quota) { q.Hold.Held = true }, false},
		"until later":           {func(q *Quota) { q.Hold.Begin(0, now.Add(1), now) }, false},
		"until now":             {func(q *Quota) { q.Hold.Begin(0, now, now) }, true},
		"a rejection":           {func(q *Quota) { q.Hold.Suspected = true }, true},
		"something was learned": {func(q *Quota) { q.Learned = new(Learned) }, false},
		"another known limit":   {func(q *Quota) { q.Estimates = []statedlimit.Estimate{{Name: "b", Limit: 10, Reset: now}} }, false},
		"a limit of other size": {func(q *Quota) { q.Estimates = []statedlimit.Estimate{{Name: "a", Limit: 9, Reset: now}} }, false},
	} {
		q := modelAt(0)
		tt.change(q)
		may, shown := q.Matches([]throttle.RemoteLimit{{Name: "a", Limit: 10, Remaining: 5, ResetAfter: time.Minute}}, 0, now)
		require.Equal(t, tt.may, may, name)
		require.False(t, shown, name)
	}
}

// After more than a second without a request, and without a reason to wait, a new span of accepted requests
// begins.
func TestQuota_beginsASpanAfterAnIdleTime(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	before := learnedlimit.AcceptedSpan{Since: now.Add(-time.Minute), N: 7}
	for name, tt := range map[string]struct {
		granted, held time.Duration // before now
		idle          bool
	}{
		"a second":              {time.Second, time.Hour, false},
		"more than a second":    {time.Second + 1, time.Hour, true},
		"held until a second":   {time.Hour, time.Second, false},
		"held, but not so long": {time.Hour, time.Second + 1, true},
	} {
		q := modelAt(0)
		q.Span, q.LastGranted, q.Hold.Until = before, now.Add(-tt.granted), now.Add(-tt.held)
		q.grant(1, now)
		require.Equal(t, tt.idle, q.Span == learnedlimit.AcceptedSpan{Since: now}, name)
		require.Equal(t, !tt.idle, q.Span == before, name)
	}
	q := modelAt(0)
	q.LastGranted = now
	q.grant(1, now)
	require.Equal(t, learnedlimit.AcceptedSpan{Since: now}, q.Span, "the first one")
}

// The reasons to delay a claim are asked in one order: the first that holds names the decision. Callers that do not
// wait are not bounded in flight.
func TestQuota_namesTheReasonToWait(t *testing.T) {
	q := known(0)
	exchange(q, start, failed)
	peersLeft := func() { q.FetchUntil = at(time.Hour) }
	held := func() { q.Hold.Begin(q.InFlight.Sent, at(time.Hour), start); q.Account.NeverTest = true }
	stopped := func() { q.Hold.Begin(q.InFlight.Sent, time.Time{}, start) }
	limited := func() {
		q.Estimates = []statedlimit.Estimate{statedlimit.NewEstimate(throttle.RemoteLimit{Limit: 9}, false)}
		q.Estimates[0].Update(usedUp(start), 0, start, &q.InFlight)
	}
	rate := func() { q.remember(start).Loop.BeginAt(throttle.CauseUnstated, .1, 0, start) }
	overload := func() {
		for range 60 {
			q.InFlight.Open = 30
			d := throttle.Decision{Grant: q.grant(1, start)}
			respond(q, d, failed, at(s))
		}
		q.InFlight.Open = 30
	}
	ramp := func() { q.release(start, releaseTrips, at(time.Hour)); q.LastGranted = start; q.InFlight.Open = 30 }
	for _, tt := range []struct {
		name              string
		begin             func()
		policy            string
		imposed, estimate bool
		noWait            bool // callers that do not wait are rejected, too
	}{
		{"ramp", ramp, "slow start", true, false, false},
		{"overload", overload, "overload", false, true, false},
		{"rate", rate, "learned rate", true, true, true},
		{"limit", limited, "quota", true, false, true},
		{"hold", stopped, "learned rate", true, true, true},
		{"stated hold", held, "retry-after", true, false, true},
		{"fetch", peersLeft, "slow start", true, false, true},
	} {
		tt.begin()
		d := dryRun(q, at(s+1))
		require.False(t, d.OK, tt.name)
		require.Equal(t, []any{tt.policy, tt.imposed, tt.estimate}, []any{d.Policy, d.ServerImposed, d.Estimated}, tt.name)
		require.Equal(t, !tt.noWait, ask(q, Claim{DryRun: true}, at(s+1)).OK, tt.name)
	}
}

// A claim that was not sent gives back what it took, once.
func TestQuota_aClaimThatWasNotSent(t *testing.T) {
	q := known(0)
	q.remember(start).Loop.BeginAt(throttle.CauseUnstated, 10/.99, q.InFlight.Sent, at(-s))
	q.Learned.Loop.Next = start
	d := ask(q, Claim{Waits: true, Units: 5}, start)
	require.True(t, d.OK)
	require.Equal(t, at(500*ms), q.Learned.Loop.Next)
	for range 2 {
		q.Canceled(d.Grant, 5)
		require.Equal(t, start, q.Learned.Loop.Next)
		require.Zero(t, q.InFlight.Open)
	}

	q = held(t, 0, bare)
	test := reserve(q, at(10*ms))
	require.True(t, q.Testing())
	q.Canceled(test.Grant, 1)
	require.False(t, q.Testing())
	require.True(t, reserve(q, at(10*ms+s)).OK, "the next test")
}
