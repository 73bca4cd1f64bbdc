package main

import (
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bench/internal/simulation"
)

// named returns the rows of a family whose names match an expression.
func named(t *testing.T, family, name string, n int) []row {
	some := matching(rows(), regexp.MustCompile("^"+family+"$"), regexp.MustCompile(name))
	require.Len(t, some, n, "%s: %s", family, name)
	return some
}

func TestRow_measuresAllClients(t *testing.T) {
	r := named(t, "closed", "^500 5 %$", 1)[0]
	for _, client := range []string{"plain", "retryablehttp", "heed"} {
		synctest.Test(t, func(t *testing.T) {
			got := r.run(client, 1)
			require.Equal(t, 2000, got.Calls, client)
			if client == "plain" {
				require.NotZero(t, got.Failed)
				require.Equal(t, got.Failed, got.Rejected)
				require.Equal(t, 2000, got.Sent)
				return
			}
			require.Zero(t, got.Failed, client)
			require.Equal(t, 2000, got.Sent-got.Rejected, client)
		})
	}
}

// Covers a part of what the command measures, with one seed.
func TestRows_meetTheirGoals(t *testing.T) {
	if testing.Short() {
		t.Skip("only make test-long runs it")
	}
	some := named(t, "open", "^(503 1 %, deadline 5s|drop 1 %, deadline 300ms)$", 2)
	some = append(some, named(t, "crowd", "^(503|429 Retry-After: 0) 1 %$", 2)...)
	some = append(some, named(t, "cold", "^no fault$", 1)...)
	some = append(some, named(t, "polls", "", 1)...)
	table := &table{}
	measure(t, some, []string{"plain", "retryablehttp", "heed"}, 1, 1, func(r result) {
		_, missed := table.evaluate(r)
		assert.Empty(t, missed, "%s: %s", r.Family, r.Row)
	})
}

// In the field a plain client fails the calls of the faults alone, whatever the row.
func TestField_hasFaultsAsItsNamesSay(t *testing.T) {
	for name, failed := range map[string]float64{
		"^no fault, 20/s, latency 4s of 5s$":                                    0,
		"^language model, 100 workers, 1 to 3 s of 4 s$":                        0,
		"^1000 goroutines, 50ms of 300ms$":                                      0,
		"^5 polls of 30s beside 50/s, deadline 300ms$":                          0,
		"^429 5 %, deadline 5s, body of aws$":                                   5,
		"^one backend of 20, 429 Retry-After: 1, deadline 5s$":                  5,
		"^deployment: 33 % of 30 backends 503 Retry-After: .1. for 30 s of 90$": 11.1,
		"^one resource of 50, 429 Retry-After: 1$":                              2,
		"^one tenant of 100, by Cookie, 429 Retry-After: 1$":                    1,
		"^two routes of 20, bare 429$":                                          10,
		"^all requests 503 for 1s of 90 s, deadline 300ms$":                     1.1,
		"^30 % of resources forbidden$":                                         0,
		"^not enforced: Remaining: 0$":                                          0,
		"^90 of 1000 left for 45m0s, 30 calls, deadline 5s, together$":          0,
	} {
		r := named(t, "field", name, 1)[0]
		synctest.Test(t, func(t *testing.T) {
			got := r.run("plain", 1)
			require.InDelta(t, failed, got.failed(), .2+failed/6, name)
		})
	}
}

func TestRows_haveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		name := r.family + ": " + r.name
		require.False(t, seen[name], name)
		seen[name] = true
		require.NotEmpty(t, r.goal.peers, name)
	}
}

func TestMisses_knowsTheGoals(t *testing.T) {
	open := simulation.Scenario{Loads: []simulation.Load{{Interval: time.Second}}}
	closed := simulation.Scenario{Loads: []simulation.Load{{Workers: 1}}}
	run := func(r row, client string, failed int, times ...float64) (all []result) {
		for _, s := range times {
			all = append(all, result{Client: client, Calls: 1000, Failed: failed, Elapsed: s, Mean: s, row: r})
		}
		return all
	}
	atMost := goal{peers: retries, points: .5, times: 1.2}
	for name, tt := range map[string]struct {
		row           row
		ours, theirs  int
		times, others []float64
		missed        []string
	}{
		"as many failures":        {row{Scenario: open, goal: atMost}, 6, 1, []float64{1, 1}, []float64{1, 1}, nil},
		"more failures":           {row{Scenario: open, goal: atMost}, 7, 1, []float64{1, 1}, []float64{1, 1}, []string{"more failures than retryablehttp in 2 of 2 seeds"}},
		"slower calls":            {row{Scenario: open, goal: atMost}, 0, 0, []float64{1.26}, []float64{1}, []string{"1.3 x the time of retryablehttp"}},
		"a peer that fails more":  {row{Scenario: open, goal: atMost}, 0, 6, []float64{9}, []float64{1}, nil},
		"slow":                    {row{Scenario: closed, goal: atMost}, 0, 0, []float64{1, 1.3}, []float64{1, 1.5}, nil},
		"too slow":                {row{Scenario: closed, goal: atMost}, 0, 0, []float64{1.4, 1.3}, []float64{1, 1}, []string{"1.4 x the time of retryablehttp"}},
		"longer than the maximum": {row{Scenario: closed, goal: goal{peers: retries, elapsed: time.Second}}, 0, 0, []float64{1.1}, []float64{9}, []string{"longer than 1s"}},
		"no comparison of times":  {row{Scenario: closed, goal: goal{peers: retries}}, 0, 0, []float64{1.1}, []float64{.1}, nil},
		"a peer that did not run": {row{Scenario: closed, goal: goal{peers: plain}}, 9, 0, []float64{1.1}, []float64{.1}, nil},
	} {
		results := append(run(tt.row, "heed", tt.ours, tt.times...), run(tt.row, "retryablehttp", tt.theirs, tt.others...)...)
		require.Equal(t, tt.missed, misses(results), name)
	}
	early := run(row{Scenario: open, goal: atMost}, "heed", 0, 1)
	early[0].Early = 2
	require.Equal(t, []string{"2 sent early"}, misses(early))
	overloaded := run(row{Scenario: open, goal: goal{peers: plain, overload: time.Second}}, "heed", 0, 1)
	overloaded[0].Overloaded = 1.5
	require.Equal(t, []string{"overload until 1.5 s"}, misses(overloaded))
}

func TestCompare_findsTheBestPeer(t *testing.T) {
	r := row{family: "field", name: "x", goal: goal{peers: peers, points: .5}, Scenario: simulation.Scenario{Loads: []simulation.Load{{Workers: 1}}}}
	results := []result{
		{Client: "plain", Family: "field", Row: "x", Calls: 100, Failed: 2, Elapsed: 1, row: r},
		{Client: "retryablehttp", Calls: 100, Elapsed: 2, row: r},
		{Client: "heed", Calls: 100, Elapsed: 4.1, row: r},
	}
	got := compare(results)
	require.InDelta(t, 2, got.times, 1e-9, "plain fails more, so its time does not count")
	require.Zero(t, got.points)
	results[2].Failed = 30
	require.Equal(t, line{"field: x", 30, 0}, compare(results))
}
