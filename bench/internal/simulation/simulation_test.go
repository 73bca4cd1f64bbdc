package simulation_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bench/internal/simulation"
)

func TestEach_showsResultsInOrder(t *testing.T) {
	var shown []int
	simulation.Each(t, 20, func(i int) int {
		time.Sleep(time.Hour)
		return i
	}, func(i int) { shown = append(shown, i) })
	require.Len(t, shown, 20)
	require.IsIncreasing(t, shown)
}

func TestLoad_countsFailuresAndTime(t *testing.T) {
	everyFourth := func(r simulation.Request) simulation.Response {
		response := simulation.Response{Delay: 10 * time.Millisecond}
		switch {
		case r.N%8 == 4:
			response.Status = http.StatusInternalServerError
		case r.N%8 == 0:
			response.Drop = true
		}
		return response
	}
	for name, tt := range map[string]struct {
		run     func(simulation.Load, *http.Client, string) simulation.Outcome
		elapsed time.Duration
	}{
		"open": {func(l simulation.Load, c *http.Client, url string) simulation.Outcome {
			return l.Open(c, url, time.Second)
		}, 80*time.Second + 10*time.Millisecond},
		"closed": {func(l simulation.Load, c *http.Client, url string) simulation.Outcome { return l.Closed(c, url, 8) }, 100 * time.Millisecond},
		"spike":  {simulation.Load.Spike, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := simulation.NewServer(everyFourth)
				defer s.Close()
				out := tt.run(simulation.Load{Calls: 80, Deadline: time.Minute}, &http.Client{Transport: s.Transport(0)}, s.URL)
				require.Equal(t, []any{80, 20, tt.elapsed}, []any{out.Calls, out.Failed, out.Elapsed})
				require.Equal(t, 80, s.Received())
			})
		})
	}
}

func TestLoad_endsCallsAtTheirDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := simulation.NewServer(func(r simulation.Request) simulation.Response {
			return simulation.Response{Delay: time.Duration(r.InFlight) * time.Second}
		})
		defer s.Close()
		out := simulation.Load{Calls: 4, Deadline: 2500 * time.Millisecond}.Spike(&http.Client{Transport: s.Transport(4)}, s.URL)
		require.Equal(t, simulation.Outcome{Calls: 4, Failed: 2, Elapsed: 2500 * time.Millisecond, Mean: 1500 * time.Millisecond}, out)
	})
}

func TestServer_hangsUntilTheClientGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var paths []string
		s := simulation.NewServer(func(r simulation.Request) simulation.Response {
			paths = append(paths, r.HTTP.URL.Path)
			return simulation.Response{Hang: r.N == 2}
		})
		defer s.Close()
		load := simulation.Load{Calls: 3, Deadline: time.Second, Path: func(i int) string { return "/" + strings.Repeat("x", i) }}
		out := load.Closed(&http.Client{Transport: s.Transport(1)}, s.URL, 1)
		require.Equal(t, simulation.Outcome{Calls: 3, Failed: 1, Elapsed: time.Second}, out)
		require.Equal(t, []string{"/", "/x", "/xx"}, paths)
	})
}

func TestRoute_differsInEachSegment(t *testing.T) {
	seen := map[string]bool{}
	for i := range 260 {
		for segment := range strings.SplitSeq(simulation.Route(i)[1:], "/") {
			require.NotContains(t, seen, segment)
			require.NotRegexp(t, "[^a-z]", segment)
			seen[segment] = true
		}
	}
}
