package main

import (
	"net/http"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
)

// bounded sends at most as many requests at the same time as fit into its channel.
type bounded struct {
	base     http.RoundTripper
	inFlight chan struct{}
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	b.inFlight <- struct{}{}
	defer func() { <-b.inFlight }()
	return b.base.RoundTrip(r)
}

func named(t *testing.T, name string) row {
	some := rows(regexp.MustCompile("^" + regexp.QuoteMeta(name) + "$"))
	require.Len(t, some, 1, name)
	return some[0]
}

// A client that knows the capacity of a server meets the goals.
func TestRows_goalsCanBeMet(t *testing.T) {
	for name, n := range map[string]int{
		"capacity 3, 503 60 %, noise 0":          3,
		"capacity 8, 429 60 %, noise 0":          8,
		"capacity 8, drop 30 %, noise 0.5":       8,
		"capacity 8, 503 60 %, noise 1":          8,
		"capacity 32, 503 30 %, noise 1":         32,
		"429 above 10, Retry-After [], noise 1":  10,
		"503 above 10, Retry-After [1], noise 0": 10,
	} {
		r := named(t, name)
		synctest.Test(t, func(t *testing.T) {
			x := r.Run(func(base http.RoundTripper) *http.Client {
				return &http.Client{Transport: bounded{base, make(chan struct{}, n)}}
			}, 1, nil)
			require.Zero(t, x.Failed, name)
			if r.ideal > 0 {
				require.InDelta(t, 1, x.Elapsed.Seconds()/r.ideal.Seconds(), .05, name)
			} else {
				require.Less(t, x.Overloaded, 5*time.Second, name)
			}
		})
	}
}

// A plain client is overloaded by about as many calls as the prototype of the rules saw.
func TestRows_overloadAPlainClient(t *testing.T) {
	for name, failed := range map[string]float64{
		"capacity 3, 429 30 %, noise 0":         30,
		"capacity 8, 503 60 %, noise 0":         24,
		"capacity 32, drop 60 %, noise 1":       28,
		"429 above 10, Retry-After [], noise 0": 98,
	} {
		r := named(t, name)
		synctest.Test(t, func(t *testing.T) {
			require.InDelta(t, failed, r.run("plain", 1).failed(), 6, name)
		})
	}
}

// With quota.Full, heed has as few requests in flight as a server can process, if it fails more.
func TestRows_fullFindsTheCapacity(t *testing.T) {
	r := named(t, "capacity 8, drop 60 %, noise 0")
	synctest.Test(t, func(t *testing.T) {
		x := r.Run(func(base http.RoundTripper) *http.Client {
			return heed.NewClient(&heed.Transport{Base: base, Quota: &quota.Tracker{Mode: quota.Full}})
		}, 1, nil)
		require.Less(t, x.Failed, 2*x.Calls/100)
		require.Less(t, x.Overloaded, 5*time.Second)
	})
}

func TestMisses_knowsTheGoals(t *testing.T) {
	run := func(client string, failed int, overloaded, elapsed float64) result {
		return result{Client: client, Calls: 1000, Failed: failed, Overloaded: overloaded, Elapsed: elapsed, Ideal: 0}
	}
	bound := goal{failed: 0, times: 1.3}
	over := goal{failed: 2, overload: 5 * time.Second}
	for name, tt := range map[string]struct {
		goal   goal
		runs   []result
		missed []string
	}{
		"met":               {over, []result{run("plain", 30, 9, 1), run("heed", 20, 5, 1)}, nil},
		"worse than plain":  {over, []result{run("plain", 19, 9, 1), run("plain", 30, 9, 1), run("heed", 20, 5, 1), run("heed", 20, 5, 1)}, []string{"worse than plain in 1 of 2"}},
		"too many failures": {over, []result{run("plain", 30, 9, 1), run("heed", 21, 5, 1)}, []string{"2.10 % fail of at most 2"}},
		"overload":          {over, []result{run("plain", 30, 9, 1), run("heed", 20, 5.1, 1)}, []string{"overload until 5.1 s"}},
		"any failures":      {goal{failed: -1}, []result{run("plain", 900, 9, 1), run("heed", 800, 9, 1)}, nil},
		"bound":             {bound, []result{run("plain", 0, 0, 1), run("heed", 0, 0, 1.3)}, nil},
		"slow":              {bound, []result{run("heed", 0, 0, 1.31)}, []string{"1.31 x of at most 1.3"}},
		"failed":            {bound, []result{run("heed", 1, 0, 1)}, []string{"0.10 % fail of at most 0"}},
		"no heed":           {bound, []result{run("plain", 1, 0, 9)}, nil},
	} {
		for i := range tt.runs {
			tt.runs[i].row.goal = tt.goal
			if tt.goal.times > 0 {
				tt.runs[i].Ideal = 1
			}
		}
		require.Equal(t, tt.missed, misses(tt.runs), name)
	}
}

func TestRows_areComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows(regexp.MustCompile("")) {
		require.False(t, seen[r.name], r.name)
		seen[r.name] = true
	}
	require.Len(t, seen, 54+12)
}
