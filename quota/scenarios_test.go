package quota_test

import (
	"cmp"
	"flag"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/serverrules"
	"github.com/heed-go/heed/quota"
)

var updatePlots = flag.Bool("update", false, "write the plots of the examples and of docs/server-limits.md")

// The plots show what a heed.Transport does, although the calls of a scenario do not go
// through one: the numbers of requests and the times are about the same.
func TestScenarios_agreeWithTransport(t *testing.T) {
	for _, c := range scenarios {
		t.Run(c.name, func(t *testing.T) {
			s := c.run()
			var runs []transportRun // three, because random times of tests make one in 80 take a tenth longer
			for range 3 {
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(time.Until(s.start))
					runs = append(runs, c.runTransport())
				})
			}
			slices.SortFunc(runs, func(a, b transportRun) int { return cmp.Compare(a.elapsed, b.elapsed) })
			r := runs[1]
			t.Logf("simulated: %v", s.totals())
			t.Logf("Transport: %d requests, %d rejected, %d calls failed, %v", r.requests, r.rejected, r.failed, r.elapsed)
			require.InDelta(t, s.failed, r.failed, max(5, float64(s.failed)/5))
			tolerance := 0.1
			if c.varies || s.rejected() > 30 { // the order of requests of one moment decides which are rejected
				tolerance = 0.25 // a ban or a hold more or less
			} else {
				require.InDelta(t, s.rejected(), r.rejected, max(8, float64(s.rejected())))
			}
			if s.rejected() < 1000 { // else the order decides when each trial begins
				require.InEpsilon(t, s.elapsed().Seconds(), r.elapsed.Seconds(), tolerance)
			}
		})
	}
}

// A transportRun is what happens in a scenario with a heed.Transport for each client.
type transportRun struct {
	requests, rejected, failed int
	elapsed                    time.Duration
}

// runTransport runs c in virtual time.
func (c *scenario) runTransport() (r transportRun) {
	start, serve := time.Now(), c.server()
	var mu sync.Mutex // of r and serve
	base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		time.Sleep(roundTripTime / 2)
		mu.Lock()
		reply := serve(serverrules.Request{At: time.Now(), Path: req.URL.Path})
		r.requests++
		if !reply.OK() {
			r.rejected++
		}
		mu.Unlock()
		time.Sleep(roundTripTime/2 + reply.Delay)
		return respondWith(reply, req)
	})
	var clients []*http.Client
	for i := range max(c.clients, 1) {
		random, delays := randomFor(i)
		var mu sync.Mutex // of delays
		delay := func() float64 {
			mu.Lock()
			defer mu.Unlock()
			return delays.Float64()
		}
		clients = append(clients, heed.NewClient(&heed.Transport{
			Base:  base,
			Quota: &quota.Tracker{Mode: quota.Full, Rand: random.Float64},
			Retry: &heed.RetryPolicy{Backoff: backoff.Exponential{Rand: delay}, RetryAfterJitter: backoff.RetryAfterJitter{Rand: delay}},
		}))
	}
	var calls sync.WaitGroup
	for i := range c.calls {
		time.Sleep(time.Until(start.Add(c.arrival(i))))
		calls.Go(func() {
			resp, err := clients[i%len(clients)].Get(itemsURL.String())
			if err == nil {
				resp.Body.Close()
			}
			if err != nil || resp.StatusCode != http.StatusOK {
				mu.Lock()
				defer mu.Unlock()
				r.failed++
			}
		})
	}
	calls.Wait()
	r.elapsed = time.Since(start)
	return r
}

// The examples and docs/server-limits.md show the same plots. With -update, this test
// writes both.
func TestScenarios_areThoseOfTheDocs(t *testing.T) {
	const examples, page = "example_servers_test.go", "../docs/server-limits.md"
	plots := map[string]string{} // by name
	n := 0
	rewrite(t, examples, regexp.MustCompile(`(?m)^\t// Output:\n(?:\t//.*\n)*`), func(was string) string {
		c := scenarios[n]
		n++
		plot := strings.TrimPrefix(strings.ReplaceAll(was, "\t// ", ""), "Output:\n")
		if *updatePlots {
			plot = c.run().plot()
		}
		plots[c.name] = plot
		return "\t// Output:\n\t// " + strings.TrimSuffix(strings.ReplaceAll(plot, "\n", "\n\t// "), "\t// ")
	})
	require.Len(t, scenarios, n)
	n = 0
	rewrite(t, page, regexp.MustCompile("(?ms)^```text\n.*?^```\n"), func(was string) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(was, "```text\n"), "\n")
		plot, ok := plots[name]
		if !ok {
			return was
		}
		n++
		return "```text\n" + plot + "```\n"
	})
	require.GreaterOrEqual(t, n, 4, "plots in %s", page)
}

// rewrite passes each match in a file to replace, whose results must be equal to the matches
// unless -update is set: then they are written.
func rewrite(t *testing.T, file string, match *regexp.Regexp, replace func(string) string) {
	was, err := os.ReadFile(file)
	require.NoError(t, err)
	now := match.ReplaceAllStringFunc(string(was), replace)
	if *updatePlots {
		require.NoError(t, os.WriteFile(file, []byte(now), 0o600))
		return
	}
	require.Equal(t, string(was), now, "go test ./quota -run TestScenarios_areThoseOfTheDocs -update")
}

func TestScenarios_areDeterministic(t *testing.T) {
	for _, c := range scenarios {
		require.Equal(t, c.run().plot(), c.run().plot(), c.name)
	}
}

func TestScenarios_fitOnAPage(t *testing.T) {
	for _, c := range scenarios {
		lines := strings.Split(c.run().plot(), "\n")
		require.LessOrEqual(t, len(lines), 25, c.name)
		for _, line := range lines {
			require.LessOrEqual(t, len([]rune(line)), 100, c.name)
			require.Equal(t, strings.TrimRight(line, " "), line)
		}
	}
}
