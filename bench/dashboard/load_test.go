package dashboard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/internal/metricstest"
	"github.com/heed-go/heed/promheed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// The load lasts for duration and is scraped every interval. Faults last from faultStart to
// faultEnd.
const (
	duration   = 40 * time.Minute
	interval   = 15 * time.Second
	faultStart = 10 * time.Minute
	faultEnd   = 30 * time.Minute
)

// A sample is one value of a series.
type sample struct {
	at    int64 // milliseconds
	value float64
}

// A history holds the samples of a load by series.
type history struct {
	start  time.Time
	series map[string]*recorded
}

type recorded struct {
	labels  labels.Labels
	samples []sample
}

// scrape adds what the registry gathers now.
func (h *history) scrape(t *testing.T, registry *prometheus.Registry) {
	families, err := registry.Gather()
	require.NoError(t, err)
	now := time.Now().UnixMilli()
	vector, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.Time(now)}, families...)
	require.NoError(t, err)
	for _, s := range vector {
		key := s.Metric.String()
		r := h.series[key]
		if r == nil {
			b := labels.NewScratchBuilder(len(s.Metric))
			for name, value := range s.Metric {
				b.Add(string(name), string(value))
			}
			b.Add("job", "shop")
			b.Add("instance", "10.0.0.1:9090")
			b.Sort()
			r = &recorded{labels: b.Labels()}
			h.series[key] = r
		}
		r.samples = append(r.samples, sample{now, float64(s.Value)})
	}
	for _, r := range h.series { // as Prometheus does for a series that a scrape lacks
		if last := r.samples[len(r.samples)-1]; last.at != now && !value.IsStaleNaN(last.value) {
			r.samples = append(r.samples, sample{now, math.Float64frombits(value.StaleNaN)})
		}
	}
}

// play sends requests to three simulated servers and through a middleware, in virtual time,
// and returns what Prometheus would have scraped. Between faultStart and faultEnd one server
// has little quota left, one is down, one rejects and fails without rate-limit headers, clients of the
// middleware send more than it grants, Redis does not respond, and an Outbox does not reach its server. A job runs from the
// start. each is called at each tick
// while the faults last; nil means no call.
func play(t *testing.T, each func(*promheed.Collector)) *history {
	h := &history{series: map[string]*recorded{}}
	tracker, budget := &quota.Tracker{Mode: quota.Full}, &backoff.Budget{Ratio: .1, MinPerSecond: -1}
	batches := &batch.Monitor{}
	collector, registry := promheed.New(promheed.Config{Quota: tracker, Budget: budget, Batches: batches}), prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	synctest.Test(t, func(t *testing.T) {
		h.start = time.Now()
		l := &load{collector: collector, random: rand.New(rand.NewPCG(1, 2)), start: h.start}
		l.client = &heed.Transport{Base: l, Quota: tracker, Trace: collector.Trace(), Retry: &heed.RetryPolicy{MaxServerWait: -1, Budget: budget}}
		l.handler = (&throttlehttp.Middleware{
			Trace: collector.Middleware(), Queue: &queue.Queue{Trace: collector.ServerQueue(), MaxWait: 2 * time.Second, MaxTotal: 20},
			Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "per user", Count: 5, Per: time.Second, Burst: 10}),
		}).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		outbox, err := batch.OpenOutbox(batch.OutboxConfig{Name: "events", Monitor: batches, Client: &http.Client{Transport: offline{l}}})
		require.NoError(t, err)
		l.wg.Go(func() { runJob(t, batches) })
		for n := 0; time.Since(h.start) < duration; n++ {
			if n%4 == 0 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://events.test/", http.NoBody)
				require.NoError(t, err)
				_, err = outbox.Submit(req)
				require.NoError(t, err)
			}
			if l.faulty() {
				l.wg.Go(func() { metricstest.Learn(t, tracker) }) // of two other servers
			}
			for range int(interval / (250 * time.Millisecond)) {
				l.tick(t)
				if each != nil && l.faulty() {
					each(collector)
				}
				time.Sleep(250 * time.Millisecond)
			}
			h.scrape(t, registry)
		}
		l.wg.Wait()
		left, err := outbox.Close(t.Context())
		require.NoError(t, err)
		require.Empty(t, left)
	})
	return h
}

// runJob runs a job of half an hour. Each tenth item fails.
func runJob(t *testing.T, m *batch.Monitor) {
	items := make([]int, 180)
	for i := range items {
		items[i] = i
	}
	_, err := batch.Run(t.Context(), slices.Values(items), func(_ context.Context, i int) error {
		time.Sleep(20 * time.Second)
		if i%10 == 9 {
			return errFailed
		}
		return nil
	}, batch.Options{Job: "export", Total: len(items), Workers: 2, Monitor: m})
	if !errors.Is(err, errFailed) {
		t.Error(err)
	}
}

var errFailed = errors.New("it is locked")

// An offline server cannot be reached while the faults last.
type offline struct{ *load }

// RoundTrip implements http.RoundTripper.
func (o offline) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(50 * time.Millisecond)
	if o.faulty() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.EHOSTUNREACH}
	}
	return httptest.NewRecorder().Result(), nil
}

// jobDuration is the time for which playJob sends requests.
const jobDuration = 20 * time.Minute

// playJob lets 20 workers send requests to a server that permits 20 in 10 s and states it, and
// returns what Prometheus would have scraped.
func playJob(t *testing.T) *history {
	h := &history{series: map[string]*recorded{}}
	tracker := &quota.Tracker{}
	collector, registry := promheed.New(promheed.Config{Quota: tracker}), prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	synctest.Test(t, func(t *testing.T) {
		h.start = time.Now()
		l := &load{start: h.start, random: rand.New(rand.NewPCG(1, 2))}
		l.client = &heed.Transport{Base: &quotaServer{load: l}, Quota: tracker, Trace: collector.Trace()}
		for range 20 {
			l.wg.Go(func() {
				for time.Since(h.start) < jobDuration {
					l.send(t, "https://export.test/")
				}
			})
		}
		for time.Since(h.start) < jobDuration {
			time.Sleep(interval)
			h.scrape(t, registry)
		}
		l.wg.Wait()
	})
	return h
}

// A quotaServer permits 20 requests in 10 s.
type quotaServer struct{ *load }

// RoundTrip implements http.RoundTripper.
func (s *quotaServer) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(20+s.number(60)) * time.Millisecond)
	w := httptest.NewRecorder()
	s.stated(w, 20, 10*time.Second)
	return w.Result(), nil
}

// A load sends requests, and is the servers that they are sent to.
type load struct {
	collector *promheed.Collector
	client    *heed.Transport
	handler   http.Handler
	start     time.Time
	wg        sync.WaitGroup

	mu     sync.Mutex
	random *rand.Rand
	window time.Time
	used   int
}

// faulty reports whether the faults last now.
func (l *load) faulty() bool {
	d := time.Since(l.start)
	return d >= faultStart && d < faultEnd
}

func (l *load) chance(p float64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.Float64() < p
}

// tick sends the requests of a quarter of a second.
func (l *load) tick(t *testing.T) {
	search, catalog, team := .1, 1.0, 1.0
	if l.faulty() {
		search, team = .17, 3.0
	}
	for url, rate := range map[string]float64{"https://search.test/q": search, "https://catalog.test/items": catalog, "https://legacy.test/x": .3} {
		if l.chance(rate) {
			l.wg.Go(func() { l.send(t, url) })
		}
	}
	for range int(team) {
		if l.chance(.9) {
			l.wg.Go(func() {
				l.handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", http.NoBody))
			})
		}
	}
	l.store()
}

func (l *load) send(t *testing.T, url string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", url, http.NoBody)
	if err != nil {
		t.Error(err)
		return
	}
	if resp, err := l.client.RoundTrip(req); err == nil {
		resp.Body.Close()
	}
}

var errTimeout = errors.New("no response")

// store reports a call to Redis, which is slow and fails while the faults last.
func (l *load) store() {
	if l.faulty() && l.chance(.8) {
		l.collector.StoreOperation("reserve", 50*time.Millisecond, errTimeout)
		l.collector.StoreDegraded("share", errTimeout)
		return
	}
	l.collector.StoreOperation("reserve", 3*time.Millisecond, nil)
}

// RoundTrip implements http.RoundTripper: it is the servers.
func (l *load) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(20+l.number(180)) * time.Millisecond)
	w := httptest.NewRecorder()
	switch req.URL.Host {
	case "search.test":
		l.search(w)
	case "catalog.test":
		l.catalog(w)
	default:
		l.legacy(w)
	}
	return w.Result(), nil
}

// legacy rejects requests without rate-limit headers and fails while the faults last.
func (l *load) legacy(w http.ResponseWriter) {
	switch {
	case !l.faulty():
	case l.chance(.3):
		w.WriteHeader(http.StatusTooManyRequests)
	case l.chance(.5):
		w.WriteHeader(http.StatusInternalServerError)
	}
}

func (l *load) number(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.IntN(n)
}

// search has a quota of 300 requests in 10 minutes.
func (l *load) search(w http.ResponseWriter) { l.stated(w, 300, 10*time.Minute) }

// stated responds as a server that permits size requests in each window of length per, and states it.
func (l *load) stated(w http.ResponseWriter, size int, per time.Duration) {
	l.mu.Lock()
	if now := time.Now(); now.Sub(l.window) >= per {
		l.window, l.used = now, 0
	}
	l.used++
	left, reset := max(size-l.used, 0), l.window.Add(per)
	over := l.used > size
	l.mu.Unlock()
	w.Header().Set("RateLimit-Policy", fmt.Sprintf(`"search";q=%d;w=%d`, size, int(per/time.Second)))
	w.Header().Set("RateLimit", `"search";r=`+strconv.Itoa(left)+";t="+strconv.Itoa(int(time.Until(reset)/time.Second)+1))
	if over {
		w.WriteHeader(http.StatusTooManyRequests)
	}
}

// catalog fails now and then. While the faults last it is down, and asks clients to stop.
func (l *load) catalog(w http.ResponseWriter) {
	switch {
	case l.faulty():
		w.Header().Set("Retry-After", "300")
		w.WriteHeader(http.StatusServiceUnavailable)
	case l.chance(.02):
		w.WriteHeader(http.StatusInternalServerError)
	}
}
