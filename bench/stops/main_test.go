package main

import (
	"net/http"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bench/internal/simulation"
)

// impatient sends a request again after half a second until it is accepted.
type impatient struct{ base http.RoundTripper }

func (c impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		resp, err := c.base.RoundTrip(r)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		resp.Body.Close()
		time.Sleep(time.Second / 2)
	}
}

func newImpatient(base http.RoundTripper) *http.Client {
	return &http.Client{Transport: impatient{base}}
}

func named(t *testing.T, name, client string) row {
	some := matching(rows(), regexp.MustCompile("^"+regexp.QuoteMeta(name)+"$"), regexp.MustCompile("^"+client+"$"))
	require.Len(t, some, 1, name)
	return some[0]
}

// A client that obeys Retry-After, and does nothing else, meets the goals.
func TestRow_goalsCanBeMet(t *testing.T) {
	for _, name := range []string{"503 for [5s] after 0, 4000 calls, 50 workers", "429 for [30s] after 100, 4000 calls, 10 workers", "503 for [2s 5s 2s] after 100, 4000 calls, 20 workers"} {
		synctest.Test(t, func(t *testing.T) {
			r := named(t, name, "retryablehttp")
			got := r.run(r.newClient, 1)
			require.Empty(t, got.misses(), name)
			require.InDelta(t, 1, got.times(), .02, name)
			require.Equal(t, got.Calls+r.workers*len(r.lengths), got.Sent)
		})
	}
}

func TestRow_goalsCanBeMissed(t *testing.T) {
	r := named(t, "429 for [5s] after 100, 4000 calls, 10 workers", "heed")
	synctest.Test(t, func(t *testing.T) {
		r.client = "plain"
		require.Equal(t, []string{"more than 6 during the stop", "failed"}, r.run(r.newClient, 1).misses())
	})
	synctest.Test(t, func(t *testing.T) {
		got := r.run(newImpatient, 1)
		require.Equal(t, []string{"sent early", "more than 6 during the stop"}, got.misses())
		require.Equal(t, 90, got.During, "ten workers, every half second")
		require.Equal(t, 100, got.Early, "the last ones are accepted, and early nevertheless")
	})
	late := result{Elapsed: 11.1, Ideal: 10, row: r}
	require.Equal(t, []string{"longer than 1.1 x"}, late.misses())
}

// The own limit is that of the client, and the ideal time depends on it.
func TestRow_hasAnOwnLimit(t *testing.T) {
	r := named(t, "503 for [30s] after 100, 600 calls, together, own limit of 20/s", "heed")
	require.Equal(t, 70*time.Second, r.ideal(), "100 and 600 at 20/s, a pause of 5 s and a stop of 30 s")
	synctest.Test(t, func(t *testing.T) {
		require.GreaterOrEqual(t, r.run(r.newClient, 1).times(), .99)
	})
}

func TestRows_areComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rows() {
		name := r.client + " " + r.name()
		require.False(t, seen[name], name)
		seen[name] = true
	}
	require.Len(t, seen, 336)
}

func TestWatcher_ignoresWhatAClientCannotKnow(t *testing.T) {
	w, start := watcher{known: time.Second}, time.Now()
	rejected := simulation.Response{Status: 429}
	for _, x := range []struct {
		at   time.Duration
		resp simulation.Response
	}{{0, rejected}, {time.Second, rejected}, {2 * time.Second, rejected}, {3 * time.Second, simulation.Response{}}, {9 * time.Second, rejected}, {10 * time.Second, rejected}} {
		w.observe(simulation.Request{At: start.Add(x.at)}, x.resp)
	}
	require.Equal(t, 1, w.during)
}
