package monitor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

const tightFile = `
domain: api
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 60, unit: minute}
  - key: country
    rate_limit: {requests_per_unit: 1000000, unit: minute}
  - key: plan
    shadow_mode: true
    rate_limit: {requests_per_unit: 60, unit: minute, algorithm: token_bucket}
`

func mustParse(t *testing.T, text string, s rules.Config) *rules.Set {
	set, err := rules.Parse([]byte(text), s)
	require.NoError(t, err)
	return set
}

// reserveEvenly claims n units for one user at equal intervals.
func reserveEvenly(t *testing.T, set *rules.Set, n int, every time.Duration) {
	for i := range n {
		var ticket queue.Ticket
		set.Add(&ticket, entries("user", "ann"), entries("country", "at"), entries("plan", "free"))
		now := hour.Add(time.Duration(i) * every)
		d, err := ticket.Reserve(context.Background(), now)
		require.NoError(t, err)
		if d.OK {
			ticket.Report(context.Background(), throttle.Feedback{Now: now, Outcome: throttle.Failed})
		}
	}
}

func recommendations(g *monitor.Registry, set *rules.Set) (all []string) {
	for _, l := range set.All() {
		all = append(all, l.Policy()+": "+g.Recommend(l).String())
	}
	return all
}

func TestRegistry_recommendsPerLimit(t *testing.T) {
	g := &monitor.Registry{}
	set := mustParse(t, tightFile, rules.Config{DecisionHook: g, Clock: fixedClock(hour)})
	reserveEvenly(t, set, 9000, time.Minute/90)
	all := strings.Join(recommendations(g, set), "\n")
	require.Equal(t, `api/user: Raise to 96 per 1m0s: 33.3 % of all claims were rejected, from keys that need no more than that.
api/country: Keep it: it rejects 0.0 % of all claims.
api/plan: Keep it: it rejects 0.0 % of all claims.`, all)
}

// TestRegistry_keepsStatsOfUnchangedLimits checks that a limit keeps its counts when other limits
// of its file change, and starts anew when its own amount changes.
func TestRegistry_keepsStatsOfUnchangedLimits(t *testing.T) {
	g := &monitor.Registry{}
	s := rules.Config{DecisionHook: g, Clock: fixedClock(hour)}
	set := mustParse(t, tightFile, s)
	reserveEvenly(t, set, 100, time.Millisecond)
	user, country := set.All()[0], set.All()[1]
	require.EqualValues(t, 40, g.Stats(user).Snapshot().Rejected)

	changed := mustParse(t, strings.Replace(tightFile, "1000000", "2000000", 1), s)
	require.Same(t, g.Stats(user), g.Stats(changed.All()[0]))
	require.NotSame(t, g.Stats(country), g.Stats(changed.All()[1]))

	was := g.Stats(user)
	g.Retain(changed)
	require.Same(t, was, g.Stats(changed.All()[0]))
	require.Zero(t, g.Stats(country).Snapshot().Decided(), "it is not in the file any more")
}

func TestRegistry_alertsOncePerLimitAndKey(t *testing.T) {
	var incidents []string
	g := &monitor.Registry{Alert: func(l *rules.Limit) *monitor.Alert {
		if l.Policy() == "api/country" {
			return nil
		}
		return &monitor.Alert{Threshold: throttle.PerMinute(30), OnIncident: func(e monitor.Incident) {
			incidents = append(incidents, fmt.Sprintf("%s %s: %d+%d", l.Policy(), e.Key, e.Rejected, e.Failed))
		}}
	}}
	reserveEvenly(t, mustParse(t, tightFile, rules.Config{DecisionHook: g, Clock: fixedClock(hour)}), 100, time.Millisecond)
	require.Equal(t, []string{"api/user ann: 0+31", "api/plan free: 0+31"}, incidents)
}

func TestRegistry_alertsOfRejections(t *testing.T) {
	var incidents []monitor.Incident
	g := &monitor.Registry{Alert: func(*rules.Limit) *monitor.Alert {
		return &monitor.Alert{Threshold: throttle.PerMinute(30), OnIncident: func(e monitor.Incident) { incidents = append(incidents, e) }}
	}}
	l := mustParse(t, tightFile, rules.Config{}).All()[0]
	for i := range 100 {
		g.Decided(l, throttle.Claim{Key: "ann"}, throttle.Decision{At: hour.Add(time.Duration(i) * time.Millisecond)})
	}
	require.Len(t, incidents, 1)
	require.EqualValues(t, 31, incidents[0].Rejected)
	require.Zero(t, incidents[0].Failed)
}

func TestRegistry_doesNotAllocate(t *testing.T) {
	g := &monitor.Registry{}
	l := &rules.Limit{ID: "api/user", Spec: throttle.PerMinute(60)}
	c, d := throttle.Claim{Key: "ann"}, throttle.Decision{OK: true, At: hour}
	require.Zero(t, testing.AllocsPerRun(200, func() {
		g.Decided(l, c, d)
		g.Observed(t.Context(), l, c, d, throttle.Feedback{})
		g.Cancelled(l, c, d)
	}))
}

// hour is a time at which windows of all units up to an hour begin.
var hour = time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)

func entries(pairs ...string) (d rules.Descriptor) {
	for i := 0; i < len(pairs); i += 2 {
		d = append(d, rules.Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func TestRegistry_reportsDecisions(t *testing.T) {
	got := map[string]int{}
	g := &monitor.Registry{OnDecision: func(limit string, d throttle.Decision) { got[fmt.Sprint(limit, " ", d.OK, " ", d.OverLimit)]++ }}
	set := mustParse(t, tightFile, rules.Config{DecisionHook: g, Clock: fixedClock(hour)})
	reserveEvenly(t, set, 100, time.Millisecond)
	require.Equal(t, map[string]int{
		"api/user true false": 60, "api/user false false": 40, "api/country true false": 60, "api/plan true false": 60,
	}, got)
	g.Decided(set.All()[0], throttle.Claim{DryRun: true}, throttle.Decision{OK: true})
	require.Equal(t, 60, got["api/user true false"], "a dry run")
}
