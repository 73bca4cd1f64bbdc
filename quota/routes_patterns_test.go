package quota

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

const pages = "https://api.test/pages/"

// slug returns a path segment that looks like a word, another one for each i.
func slug(i int) string {
	return string([]byte{'a' + byte(i%26), 'a' + byte(i/26%26), 'a' + byte(i/676%26)}) + "-title"
}

// patternOf returns the quota of the pattern that further pages match; nil: they match none.
func patternOf(t *testing.T, tr *Tracker) *quota {
	return endpointOf(t, tr).patterns.Of(tr.seed, request(t, pages+slug(9999)))
}

// stating returns a response that states how many requests of limit are left for a minute.
func stating(limit, left int) *http.Response {
	return answer(200, "X-RateLimit-Limit", strconv.Itoa(limit), "X-RateLimit-Remaining", strconv.Itoa(left), "X-RateLimit-Reset", "60")
}

// askPages requests n pages, beginning with page from, whose responses state one quota of 100.
func askPages(t *testing.T, tr *Tracker, from, n int) {
	for i := range n {
		require.True(t, ask(t, tr, pages+slug(from+i), stating(100, 99-from-i)).OK)
	}
}

// endpointOf returns the endpoint of the pages.
func endpointOf(t *testing.T, tr *Tracker) *endpoint { return tr.endpointOf(request(t, pages)) }

// limiterOf returns the quota that admits a request of url.
func limiterOf(t *testing.T, tr *Tracker, url string) *quota {
	q, ours := tr.Demand(request(t, url)).Limiter.(*quota)
	require.True(t, ours, url)
	return q
}

// lockedRand returns a source of random numbers that is safe for concurrent use.
func lockedRand() func() float64 {
	var mu sync.Mutex
	source := random(1)
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Float64()
	}
}

// A pageJob is the result of playPages.
type pageJob struct {
	job
	delayed time.Duration // the longest delay of the other route
}

// A route of a server.
type route struct {
	url    string
	server server
}

// playPages requests n pages with different slugs from c goroutines, and the other route once a
// second. It must be called in a bubble.
func playPages(t *testing.T, tr *Tracker, s server, n, c int, other route) (j pageJob) {
	const rtt = 50 * time.Millisecond
	w := &queue.Queue{}
	start := time.Now()
	var mu sync.Mutex
	// send sends one request and returns how long it was delayed, what the response states, and its status.
	send := func(url string, s server) (time.Duration, throttle.Feedback, int) {
		req, asked := request(t, url), time.Now()
		var ticket queue.Ticket
		ticket.Demands = append(ticket.Demands[:0], tr.Demand(req))
		if err := w.Wait(t.Context(), &ticket); err != nil {
			return 0, throttle.Feedback{}, 0
		}
		delayed := time.Since(asked)
		time.Sleep(rtt / 2)
		mu.Lock()
		status, h := s(time.Now())
		mu.Unlock()
		time.Sleep(rtt / 2)
		f := tr.Feedback(req, ticket.Demands[0], &http.Response{StatusCode: status, Header: h}, nil, time.Now(), nil)
		w.Report(t.Context(), &ticket, f)
		return delayed, f, status
	}
	send(other.url, other.server)
	calls, done := make(chan int, n), make(chan struct{})
	for i := range n {
		calls <- i
	}
	close(calls)
	var workers, watcher sync.WaitGroup
	for range c {
		workers.Go(func() {
			for i := range calls {
				status := 0
				var delay time.Duration
				var f throttle.Feedback
				for attempt := 1; attempt <= 10 && status != http.StatusOK; attempt++ { // as a heed.Transport does
					time.Sleep(delay)
					if _, f, status = send(pages+slug(i), s); StatedDelay(&f) > 0 {
						delay = StatedDelay(&f)
					} else {
						delay = backoff.Exponential{Rand: tr.Rand}.Delay(attempt, delay)
					}
					mu.Lock()
					if j.sent++; status == http.StatusTooManyRequests {
						j.throttled++
						j.arrivals = append(j.arrivals, time.Since(start))
					}
					mu.Unlock()
				}
				mu.Lock()
				if status != http.StatusOK {
					j.failed++
				}
				mu.Unlock()
			}
		})
	}
	watcher.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
				d, _, status := send(other.url, other.server)
				j.delayed = max(j.delayed, d)
				if status != http.StatusOK {
					t.Errorf("status %d of the other route", status)
				}
			}
		}
	})
	workers.Wait()
	j.elapsed = time.Since(start)
	close(done)
	watcher.Wait()
	return j
}

// 300 pages with slugs have one quota and few rejections, like 300 requests of one route: at most what begins a hold,
// and its tests, in each window. Another
// route with a quota of its own is not delayed.
func TestPatterns_slugPagesShareTheirQuota(t *testing.T) {
	for name, tt := range map[string]struct {
		server  func() server
		c       int
		window  time.Duration
		elapsed time.Duration
	}{
		"window, headers, 1 goroutine":      {func() server { return fixedWindow(100, time.Minute, true, true) }, 1, time.Minute, 160 * time.Second},
		"window, headers, 8 goroutines":     {func() server { return fixedWindow(100, time.Minute, true, true) }, 8, time.Minute, 160 * time.Second},
		"window, Retry-After, 1 goroutine":  {func() server { return fixedWindow(100, time.Minute, false, true) }, 1, time.Minute, 130 * time.Second},
		"window, Retry-After, 2 goroutines": {func() server { return fixedWindow(100, time.Minute, false, true) }, 2, time.Minute, 130 * time.Second},
		"bucket, headers, 1 goroutine":      {func() server { return tokenBucket(2, 20, true) }, 1, 10 * time.Second, 145 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &Tracker{Rand: lockedRand()}
			other := route{"https://api.test/status", fixedWindow(500, time.Minute, true, true)}
			j := playPages(t, tr, tt.server(), 300, tt.c, other)
			t.Logf("%s: %v, rejected at %v, delayed by %v", name, j.job, j.arrivals, j.delayed)
			require.Zero(t, j.failed, name)
			require.LessOrEqual(t, j.maxArrivals(tt.window*9/10, 0), 20, "%s: rejections in a window", name)
			require.LessOrEqual(t, j.elapsed, tt.elapsed, name)
			require.Zero(t, j.delayed, "%s: the other route", name)
		})
	}
}

// Responses to concurrent requests state one quota although they arrive out of order and a bucket is
// refilled between them.
func TestPatterns_concurrentPagesAreOneQuota(t *testing.T) {
	for name, s := range map[string]func() server{
		"window": func() server { return fixedWindow(100, time.Minute, true, true) },
		"bucket": func() server { return tokenBucket(2, 20, true) },
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := &Tracker{Rand: lockedRand()}
			other := route{"https://api.test/status", fixedWindow(500, time.Minute, true, true)}
			j := playPages(t, tr, s(), 300, 30, other)
			t.Logf("%s: %v, delayed by %v", name, j.job, j.delayed)
			require.Len(t, endpointOf(t, tr).quotas, 2, name)
			require.LessOrEqual(t, j.elapsed, 190*time.Second, name)
			goal(t, "concurrent pages of a "+name, j.failed == 0 && j.throttled <= 30, "%v", j.job)
		})
	}
}

func TestPatterns_thirdRouteMakesThePattern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		ask(t, tr, issues, stating(500, 499))
		askPages(t, tr, 0, 2)
		known := limiterOf(t, tr, pages+slug(0))
		require.Same(t, known, limiterOf(t, tr, pages+slug(1)))
		require.NotSame(t, known, limiterOf(t, tr, pages+"new"), "two routes make no pattern")
		askPages(t, tr, 1, 1)
		require.NotSame(t, known, limiterOf(t, tr, pages+"new"), "one of them again makes no pattern")
		askPages(t, tr, 2, 1)
		require.Same(t, known, limiterOf(t, tr, pages+"new"))

		for _, url := range []string{
			"https://api.test/pages", "https://api.test/users/new", "https://api.test/pages/new/edit",
		} {
			require.NotSame(t, known, limiterOf(t, tr, url), url)
		}
		post := request(t, pages+"new")
		post.Method = http.MethodPost
		q, _ := tr.Demand(post).Limiter.(*quota)
		require.NotSame(t, known, q, "a POST is another route")
		require.NotSame(t, known, limiterOf(t, tr, issues))
		ask(t, tr, pages+"last", stating(100, 0))
		require.False(t, mayAsk(t, tr, pages+"new"))
		require.True(t, mayAsk(t, tr, issues))
	})
}

// Routes of a pattern need no entries in endpoint.routes.
func TestPatterns_routesOfAPatternReplaceNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		ask(t, tr, issues, stating(500, 499))
		for i := range 300 {
			ask(t, tr, pages+slug(i), stating(1000, 999-i))
		}
		ep := endpointOf(t, tr)
		require.Len(t, ep.routes, 4)
		require.Len(t, ep.quotas, 2)
		require.NotSame(t, limiterOf(t, tr, issues), limiterOf(t, tr, pages+"new"))
	})
}

// Three routes of one quota make it the quota of all routes, unless they are of one pattern.
func TestPatterns_routesOfAPatternCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		askPages(t, tr, 0, 5)
		ask(t, tr, pages+"last", stating(100, 0))
		require.False(t, mayAsk(t, tr, pages+"new"))
		require.True(t, mayAsk(t, tr, search))
	})
}

func TestPatterns_quotaOfEachSlugIsNoPattern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		for i := range 12 {
			ask(t, tr, "https://api.test/users/"+slug(i), stating(100, 99))
		}
		require.Nil(t, patternOf(t, tr), "each states as many remaining requests, so each may have a quota of its own")

		askPages(t, tr, 0, 2)
		ask(t, tr, pages+"own", stating(40, 20))
		askPages(t, tr, 2, 4)
		require.Nil(t, patternOf(t, tr), "pages of two quotas")
		require.NotSame(t, limiterOf(t, tr, pages+slug(0)), limiterOf(t, tr, pages+"own"))
	})
}

// A pattern ends when one of its routes shows another quota. Routes that are known remain.
func TestPatterns_secondQuotaEndsThePattern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		ask(t, tr, issues, stating(500, 499))
		askPages(t, tr, 0, 3)
		known := limiterOf(t, tr, pages+slug(0))
		require.Same(t, known, limiterOf(t, tr, pages+"own"))
		ask(t, tr, pages+"own", stating(40, 20))
		require.NotSame(t, known, limiterOf(t, tr, pages+"own"))
		require.NotSame(t, known, limiterOf(t, tr, pages+"new"))
		require.Same(t, known, limiterOf(t, tr, pages+slug(1)))
		askPages(t, tr, 3, 9)
		require.NotSame(t, known, limiterOf(t, tr, pages+"new"), "it does not become a pattern again")
	})
}

// A hold of one route of a pattern concerns
// all of its routes, whichever quota admitted the request.
func TestPatterns_holdOfOneRouteHoldsThePattern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		ask(t, tr, issues, stating(500, 499))
		early := request(t, pages+"early")
		admitted := tr.Demand(early)
		d, err := admitted.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		askPages(t, tr, 0, 3)
		f := tr.Feedback(early, admitted, answer(429, "Retry-After", "30"), nil, time.Now(), nil)
		require.Same(t, limiterOf(t, tr, pages+slug(0)), limiterOf(t, tr, pages+"early"))
		admitted.Limiter.Report(t.Context(), throttle.Claim{}, d, f)
		reject(t, tr, pages+"some", "Retry-After", "30")
		for _, page := range []string{"some", "early", "new", slug(1)} {
			require.False(t, mayAsk(t, tr, pages+page), page)
		}
		require.True(t, mayAsk(t, tr, issues))
		require.Len(t, endpointOf(t, tr).quotas, 2)
	})
}

// Updates identify routes by hashes, so each process finds patterns of its own.
func TestPatterns_areLocalToAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		askPages(t, one, 0, 3)
		settle(b)
		require.Same(t, limiterOf(t, one, pages+slug(0)), limiterOf(t, one, pages+"new"))
		require.Nil(t, patternOf(t, other))
		time.Sleep(probeEvery)
		reject(t, one, pages+"new", "Retry-After", "30")
		settle(b)
		require.False(t, mayAsk(t, other, pages+slug(2)), "a route that the other process knows")
		require.Len(t, endpointOf(t, other).quotas, 1, "the other process knows one quota")
	})
}

func TestPatterns_memoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		ep := endpointOf(t, tr)
		for i := range 3000 {
			url := "https://api.test/" + strings.Repeat("dir/", i%6) + slug(i) + "/" + slug(i*7)
			state := fmt.Sprintf(`"a%d";r=%d;t=60, "b%d";r=%d;t=60`, i/40, 900-i%40, i/40, 900-i%40)
			policy := fmt.Sprintf(`"a%d";q=1000;w=60, "b%d";q=1000;w=60`, i/40, i/40)
			ask(t, tr, url, answer(200, "RateLimit", state, "RateLimit-Policy", policy)) // two limits: a small quota holds only one
			require.LessOrEqual(t, ep.Memory.Load(), int64(model.MaxBytes))
			if i%40 == 39 {
				time.Sleep(time.Minute)
			}
		}
		require.NotZero(t, ep.patterns.Bytes())
		for len(ep.quotas) > 0 {
			ep.drop(len(ep.quotas) - 1)
		}
		require.Equal(t, ep.patterns.Bytes()+resetUnitBytes, ep.Memory.Load(), "all other bytes were released")
		require.Nil(t, patternOf(t, tr))
	})
}
