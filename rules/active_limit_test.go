package rules

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// fixedClock is a clock that always returns the same time.
type fixedClock time.Time

func (s fixedClock) Now() time.Time                     { return time.Time(s) }
func (fixedClock) After(time.Duration) <-chan time.Time { return nil }

// friday is the time at which the tests begin.
var friday = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

// activeLimitOf returns the activeLimit of a limit, created at friday.
func activeLimitOf(t *testing.T, words string) *activeLimit {
	return oneRule(t, words, Config{Clock: fixedClock(friday)}).limiter
}

// reserveAt claims n units from l at a time of day of 2026-11-20, a Friday.
func reserveAt(t *testing.T, l throttle.Limiter, n int64, at string) throttle.Decision {
	now, err := time.Parse("2006-01-02 15:04:05", "2026-11-20 "+at)
	require.NoError(t, err)
	d, err := l.Reserve(context.Background(), throttle.Claim{Key: "k", Cost: n, Now: now})
	require.NoError(t, err)
	return d
}

// TestActiveLimit_changeNeitherRefillsNorEmpties examines a bucket of 100 per minute by day and of
// 10 per minute by night, around the changes between the two.
func TestActiveLimit_changeNeitherRefillsNorEmpties(t *testing.T) {
	g := activeLimitOf(t, "rate_limit: {unit: minute, requests_per_unit: 10, burst: 10, active: {from: 09:00, to: 17:00, requests_per_unit: 100, burst: 100}}")
	left := func(at string) int64 { return reserveAt(t, g, 1000, at).Remaining } // rejected: takes nothing

	require.True(t, reserveAt(t, g, 10, "08:59:54").OK)
	require.EqualValues(t, 1, left("09:00:00"), "what flowed in by night")
	require.EqualValues(t, 51, left("09:00:30"), "what flows in by day")
	require.EqualValues(t, 100, left("09:10:00"))
	require.True(t, reserveAt(t, g, 95, "16:59:59").OK)
	require.EqualValues(t, 6, left("17:00:00"))
	require.EqualValues(t, 7, left("17:00:06"))
	require.EqualValues(t, 10, left("18:00:00"))
}

// TestActiveLimit_appliesMissedChanges compares a key that is claimed continuously with one that
// is claimed occasionally.
func TestActiveLimit_appliesMissedChanges(t *testing.T) {
	words := "rate_limit: {unit: hour, requests_per_unit: 60, burst: 90, active: [" +
		"{from: 09:00, to: 17:00, requests_per_unit: 600, burst: 500}, {from: 22:00, to: 02:00, requests_per_unit: 7, burst: 30}]}"
	watched, lazy := activeLimitOf(t, words), activeLimitOf(t, words)
	rng, ctx := rand.New(rand.NewPCG(8, 2)), context.Background()
	now := friday
	ask := func(g *activeLimit, n int64) throttle.Decision {
		d, err := g.Reserve(ctx, throttle.Claim{Key: "k", Cost: n, Now: now})
		require.NoError(t, err)
		return d
	}
	for range 300 {
		for end := now.Add(time.Duration(rng.Int64N(int64(30 * time.Hour)))); now.Before(end); now = now.Add(10 * time.Minute) {
			ask(watched, 1000) // takes nothing
		}
		n := 1 + rng.Int64N(400)
		a, b := ask(watched, n), ask(lazy, n)
		require.Equal(t, a.OK, b.OK, now)
		require.Equal(t, a.Remaining, b.Remaining, now)
	}
}

// TestActiveLimit_changeKeepsUsage examines each algorithm that can change in use.
func TestActiveLimit_changeKeepsUsage(t *testing.T) {
	for _, words := range []string{
		"unit: day, requests_per_unit: 10, algorithm: token_bucket",
		"unit: day, requests_per_unit: 10, algorithm: refill",
		"unit: day, requests_per_unit: 10, algorithm: leaky_bucket",
		"unit: day, requests_per_unit: 10",
		"calendar: day, requests_per_unit: 10",
		"unit: day, requests_per_unit: 10, align: first",
		"unit: day, requests_per_unit: 10, algorithm: permits_per_period",
		"unit: day, requests_per_unit: 10, algorithm: sliding_log",
		"unit: day, requests_per_unit: 10, algorithm: sliding_counter",
		"unit: day, requests_per_unit: 10, granularity: 1h",
	} {
		g := activeLimitOf(t, "rate_limit: {"+words+", active: {from: 09:00, to: 17:00, requests_per_unit: 100}}")
		require.True(t, reserveAt(t, g, 10, "08:59:59").OK, words)
		d := reserveAt(t, g, 1, "08:59:59")
		require.False(t, d.OK, words)
		require.LessOrEqual(t, d.Wait, time.Second, words)
		used := reserveAt(t, g, 1000, "09:00:00")
		switch used.Remaining {
		case 90: // windows: 10 are used
		case 0: // buckets: nothing has been refilled
		default:
			require.Fail(t, "units were lost or made", "%s: %d", words, used.Remaining)
		}
		require.False(t, reserveAt(t, g, 91, "09:00:00").OK, words)
	}
}

// TestActiveLimit_closedHours checks that claims are rejected until a period begins, with the time
// until then as Wait.
func TestActiveLimit_closedHours(t *testing.T) {
	g := activeLimitOf(t, "rate_limit: {unit: minute, requests_per_unit: 0, active: {from: 09:00, to: 17:00, requests_per_unit: 5}}")
	d := reserveAt(t, g, 1, "08:00:00")
	require.False(t, d.OK)
	require.Equal(t, time.Hour, d.Wait)
	require.Equal(t, throttle.Forever, reserveAt(t, g, 6, "08:00:00").Wait)
	require.True(t, reserveAt(t, g, 5, "09:00:00").OK)
	require.False(t, reserveAt(t, g, 1, "09:00:59").OK)
	require.True(t, reserveAt(t, g, 5, "09:01:00").OK)
	require.Equal(t, 16*time.Hour, reserveAt(t, g, 1, "17:00:00").Wait)

	night := activeLimitOf(t, "rate_limit: {unit: minute, requests_per_unit: 5, active: {from: 22:00, to: 06:00, requests_per_unit: 0}}")
	require.Equal(t, time.Hour, reserveAt(t, night, 1, "05:00:00").Wait)
	require.True(t, reserveAt(t, night, 5, "06:00:00").OK)
}

// TestActiveLimit_shadowInClosedHoursTakesNothing checks that canceling a claim that was granted
// outside the active period returns no units.
func TestActiveLimit_shadowInClosedHoursTakesNothing(t *testing.T) {
	g := oneRule(t, "value: b, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0, algorithm: token_bucket, active: {from: 09:00, to: 17:00, requests_per_unit: 5}}", Config{Clock: fixedClock(friday)}).limiter
	require.True(t, reserveAt(t, g, 5, "16:59:59").OK)
	night := reserveAt(t, g, 4, "17:00:00")
	require.True(t, night.OK)
	require.True(t, night.OverLimit)
	c := throttle.Claim{Cost: 4, Now: friday.Add(17 * time.Hour)}
	g.Report(context.Background(), c, night, throttle.Feedback{Now: c.Now, Cost: 1})
	g.Report(context.Background(), c, night, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	d, err := g.Reserve(context.Background(), throttle.Claim{Cost: 4, Now: friday.Add(24*time.Hour + 9*time.Hour)})
	require.NoError(t, err)
	require.EqualValues(t, 3, d.Remaining, "what 16 hours of 24 bring back")
	require.True(t, d.OverLimit)
}

// decisionCounts counts the calls of a DecisionHook.
type decisionCounts map[string]int

func (w decisionCounts) Decided(l *Limit, _ throttle.Claim, d throttle.Decision) {
	switch {
	case !d.OK:
		w[l.ID+" rejected"]++
	case d.OverLimit:
		w[l.ID+" over"]++
	default:
		w[l.ID+" granted"]++
	}
}

func (w decisionCounts) Cancelled(l *Limit, _ throttle.Claim, _ throttle.Decision) {
	w[l.ID+" cancelled"]++
}

func (w decisionCounts) Observed(_ context.Context, l *Limit, _ throttle.Claim, _ throttle.Decision, _ throttle.Feedback) {
	w[l.ID+" observed"]++
}

func TestActiveLimit_callsDecisionHook(t *testing.T) {
	w := decisionCounts{}
	set, err := Parse([]byte(`
domain: d
descriptors:
- {key: c, rate_limit: {unlimited: true}}
- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: b, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}
`), Config{DecisionHook: w})
	require.NoError(t, err)
	ctx := context.Background()
	for range 2 {
		for _, ds := range [][]Descriptor{{{{"b", "x"}}}, {{{"c", "x"}}}, {{{"c", "x"}}, {{"a", "x"}}}} {
			var ticket queue.Ticket
			set.Add(&ticket, ds...)
			_, err := ticket.Reserve(ctx, time.Time{})
			require.NoError(t, err)
			ticket.Report(ctx, throttle.Feedback{})
		}
	}
	require.Equal(t, decisionCounts{
		"d/a granted": 1, "d/a rejected": 1, "d/a observed": 1,
		"d/b granted": 1, "d/b over": 1, "d/b observed": 2,
		"d/c granted": 4, "d/c observed": 3, "d/c cancelled": 1,
	}, w)
}
