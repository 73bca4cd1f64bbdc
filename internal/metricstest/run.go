// Package metricstest plays a script of requests against an exporter of metrics, and has the
// values that each instrument must have afterwards. The tests of packages otelheed and
// promheed use it.
package metricstest

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// An Exporter is a Telemetry of package otelheed or a Collector of package promheed.
type Exporter interface {
	Trace() *heed.Trace
	Middleware() *throttlehttp.Trace
	ServerQueue() *queue.Trace
	Decision(limit string, d throttle.Decision)
	StoreOperation(name string, took time.Duration, err error)
	StoreDegraded(mode string, err error)
}

// A Clock is the system clock until Stop is called. It lets a test read the gauges outside of
// the synctest bubble in which it sent its requests.
type Clock struct{ stopped atomic.Pointer[time.Time] }

// Now implements throttle.Clock.
func (c *Clock) Now() time.Time {
	if at := c.stopped.Load(); at != nil {
		return *at
	}
	return time.Now()
}

// After implements throttle.Clock.
func (c *Clock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// Stop stops the clock.
func (c *Clock) Stop() {
	now := time.Now()
	c.stopped.Store(&now)
}

// NewTracker returns a Tracker for Run, whose clock is stopped at its end.
func NewTracker() (*quota.Tracker, *Clock) {
	c := new(Clock)
	return &quota.Tracker{Clock: c, Mode: quota.Full, Rand: func() float64 { return 0 }}, c
}

// NewBudget returns a Budget with 30 retries left at any time.
func NewBudget() *backoff.Budget { return &backoff.Budget{Ratio: -1, MinPerSecond: 3} }

// NewMonitor returns a Monitor with a job that has ended, of which two items are done and one has
// failed, and an Outbox that is empty.
func NewMonitor(t *testing.T) *batch.Monitor {
	t.Helper()
	m := &batch.Monitor{}
	_, err := batch.Run(t.Context(), slices.Values([]int{1, 2, 3}), func(_ context.Context, i int) error {
		if i == 3 {
			return errors.New("the third fails")
		}
		return nil
	}, batch.Options{Job: "import", Total: 3, Monitor: m})
	if err == nil {
		t.Fatal("the job has no failed item")
	}
	o, err := batch.OpenOutbox(batch.OutboxConfig{Client: http.DefaultClient, Monitor: m, Name: "events"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := o.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// A server responds to the paths of the script.
type server struct{ retried atomic.Bool }

// RoundTrip implements http.RoundTripper. Each response takes a second, those of held 0.1 s.
func (s *server) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == "/held" {
		time.Sleep(100 * time.Millisecond)
	} else {
		time.Sleep(time.Second)
	}
	w := httptest.NewRecorder()
	switch path := req.URL.Path; {
	case path == "/throttled" && !s.retried.Swap(true):
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusTooManyRequests)
	case path == "/throttled":
		w.Header().Set("RateLimit-Policy", `"default";q=100;w=60`)
		w.Header().Set("RateLimit", `"default";r=40;t=30`)
	case path == "/held":
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	default:
		status, err := strconv.Atoi(path[1:])
		if err != nil {
			return nil, &brokenError{}
		}
		w.WriteHeader(status)
	}
	return w.Result(), nil
}

// A brokenError is the error of a server that does not respond.
type brokenError struct{}

func (*brokenError) Error() string { return "broken" }

// Run plays the script in a synctest bubble: requests that are throttled, retried, rejected by
// the retry budget, held, canceled and broken; decisions of a server, and calls to a store. It
// stops the clock at the end. Queued is called while one request waits.
func Run(t *testing.T, e Exporter, tracker *quota.Tracker, clock *Clock, queued func()) {
	tr := &heed.Transport{
		Base: new(server), Quota: tracker, Trace: e.Trace(),
		Retry: &heed.RetryPolicy{Budget: &backoff.Budget{Ratio: -1, MinPerSecond: -1}},
		RetryFor: func(req *http.Request) *heed.RetryPolicy {
			if req.URL.Path != "/throttled" {
				return nil
			}
			return &heed.RetryPolicy{Budget: new(backoff.Budget), RetryAfterJitter: backoff.RetryAfterJitter{Rand: func() float64 { return 0 }}}
		},
	}
	send := func(ctx context.Context, method, url string) {
		req := newRequest(ctx, t, method, url)
		req.Header.Set("Authorization", "Bearer secret")
		if resp, err := tr.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	}
	Learn(t, tracker)
	once := heed.WithOptions(t.Context(), heed.RequestOptions{NoRetry: true})
	send(t.Context(), "GET", "https://api.test/throttled?key=secret") // one retry after 5 s
	send(t.Context(), "GET", "https://api.test/500")                  // rejected by the budget
	send(t.Context(), "POST", "https://api.test:8443/502")            // not idempotent
	send(t.Context(), "GET", "https://broken.test/secret")            // no response, and rejected by the budget
	for range 6 {
		send(once, "GET", "https://held.test/held") // the fifth holds the host for 60 s, and the sixth waits and is a test
	}
	send(heed.WithOptions(t.Context(), heed.RequestOptions{MaxWait: time.Second}), "GET", "https://held.test/held")
	sendCanceled(t, e, tr, queued)
	serve(t, e)
	e.StoreOperation("reserve", 10*time.Millisecond, nil)
	e.StoreOperation("reserve", 50*time.Millisecond, context.DeadlineExceeded)
	e.StoreDegraded("share", errors.New("throttleredis: the breaker is open"))
	clock.Stop()
}

// Learn lets tracker learn a rate of one server, with too few requests in flight for a limit on these, and a number of
// requests in flight of another one, which serves half of 16 at a time, without a Transport.
func Learn(t *testing.T, tracker *quota.Tracker) {
	for range 60 {
		exchange(t, tracker, "https://learned.test/", 3, throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnstated})
		exchange(t, tracker, "https://busy.test/", 16, throttle.Feedback{Outcome: throttle.Failed})
	}
}

// exchange reports the responses to n requests that are in flight together. All that are beyond a
// half are as f.
func exchange(t *testing.T, tracker *quota.Tracker, url string, n int, f throttle.Feedback) {
	d, c := tracker.Demand(newRequest(t.Context(), t, "GET", url)), throttle.Claim{Now: time.Now()}
	var granted []throttle.Decision
	for range n {
		decision, err := d.Limiter.Reserve(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if decision.OK {
			granted = append(granted, decision)
		}
	}
	time.Sleep(100 * time.Millisecond)
	for i, decision := range granted {
		response := throttle.Feedback{Outcome: throttle.Accepted}
		if i >= n/2 {
			response = f
		}
		response.Now = time.Now()
		d.Limiter.Report(t.Context(), c, decision, response)
	}
}

func newRequest(ctx context.Context, t *testing.T, method, url string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// sendCanceled sends two requests through a limit of one in 10 s. The second one is canceled
// after 2 s.
func sendCanceled(t *testing.T, e Exporter, tr *heed.Transport, queued func()) {
	limited := &heed.Transport{Base: tr.Base, Trace: e.Trace(), Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "own", Count: 1, Per: 10 * time.Second})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 2 {
		req := newRequest(ctx, t, "GET", "https://own.test/200")
		if i == 1 {
			time.AfterFunc(2*time.Second, func() { queued(); cancel() })
		}
		_, _ = limited.RoundTrip(req)
	}
	synctest.Wait()
}

// serve lets a Middleware decide about six requests to a limit of five, and about one that
// waits in its Queue.
func serve(t *testing.T, e Exporter) {
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	send := func(h http.Handler) {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/secret?key=secret", http.NoBody))
	}
	rejecting := &throttlehttp.Middleware{Trace: e.Middleware(), Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "five", Count: 5, Per: time.Hour, Burst: 5})}
	h := rejecting.Handler(next)
	for range 6 {
		send(h)
	}
	delaying := &throttlehttp.Middleware{
		Trace: e.Middleware(), Queue: &queue.Queue{Trace: e.ServerQueue()},
		Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "slow", Count: 1, Per: 3 * time.Second}),
	}
	h = delaying.Handler(next)
	for range 2 {
		send(h)
	}
	e.Decision("rule", throttle.Decision{OK: true, OverLimit: true})
}

// A Value is what an exporter must report of one series: the sum of a counter, the value of a
// gauge, or the number and the sum of the values of a histogram.
type Value struct {
	Count uint64 // of a histogram
	Sum   float64
}

// Want returns the values of all series after Run, by the name of the instrument and the
// attributes in the form "name{key=value,key=value}", with the keys in the order of
// metrics.Instrument.Attributes.
func Want() map[string]Value {
	want := map[string]Value{}
	for series, v := range map[string]Value{
		"call.duration{http.request.method=GET,server.address=api.test,http.response.status_code=200}":                                  {1, 7},
		"call.duration{http.request.method=GET,server.address=api.test,http.response.status_code=500,error.type=500}":                   {1, 1},
		"call.duration{http.request.method=POST,server.address=api.test,server.port=8443,http.response.status_code=502,error.type=502}": {1, 1},
		"call.duration{http.request.method=GET,server.address=broken.test,error.type=" + brokenType + "}":                               {1, 1},
		"call.duration{http.request.method=GET,server.address=held.test,http.response.status_code=429,error.type=429}":                  {6, 0.65},
		"call.duration{http.request.method=GET,server.address=held.test,error.type=rejected}":                                           {1, .05},
		"call.duration{http.request.method=GET,server.address=own.test,http.response.status_code=200}":                                  {1, 1},
		"call.duration{http.request.method=GET,server.address=own.test}":                                                                {1, 2},
		"call.retries{http.request.method=GET,server.address=api.test}":                                                                 {1, 1},
		"call.retry_delay{http.request.method=GET,server.address=api.test}":                                                             {1, 5},
		"request.time_in_queue{heed.limit.name=held.test,heed.reason=retry-after,heed.result=acquired}":                                 {1, .05},
		"request.time_in_queue{heed.limit.name=held.test,heed.reason=retry-after,heed.result=too_long}":                                 {1, .05},
		"request.time_in_queue{heed.limit.name=own,heed.result=canceled}":                                                               {1, 2},
		"attempts{server.address=held.test,http.response.status_code=429}":                                                              {Sum: 6},
		"attempts{server.address=own.test,http.response.status_code=200}":                                                               {Sum: 1},
		"attempts{server.address=api.test,http.response.status_code=200}":                                                               {Sum: 1},
		"attempts{server.address=api.test,http.response.status_code=500}":                                                               {Sum: 1},
		"attempts{server.address=api.test,http.response.status_code=429}":                                                               {Sum: 1},
		"attempts{server.address=api.test,server.port=8443,http.response.status_code=502}":                                              {Sum: 1},
		"attempts{server.address=broken.test}":                                                                                          {Sum: 1},
		"throttled{server.address=api.test,http.response.status_code=429,heed.stated=true}":                                             {Sum: 1},
		"throttled{server.address=held.test,http.response.status_code=429,heed.stated=true}":                                            {Sum: 6},
		"retries.rejected{server.address=api.test,heed.reason=budget}":                                                                  {Sum: 1},
		"retries.rejected{server.address=api.test,server.port=8443,heed.reason=unsafe}":                                                 {Sum: 1},
		"retries.rejected{server.address=broken.test,heed.reason=budget}":                                                               {Sum: 1},
		"quota.limit{server.address=api.test,heed.quota.name=default,heed.quota.unit=requests,heed.quota.known=stated}":                 {Sum: 100},
		"quota.remaining{server.address=api.test,heed.quota.name=default,heed.quota.unit=requests,heed.quota.known=stated}":             {Sum: 40},
		"quota.utilization{server.address=api.test,heed.quota.name=default,heed.quota.unit=requests,heed.quota.known=stated}":           {Sum: .6},
		"quota.reset{server.address=api.test,heed.quota.name=default,heed.quota.unit=requests,heed.quota.known=stated}":                 {Sum: 20.3},
		"quota.rate{server.address=learned.test}":                                                                                       {Sum: 4.95},
		"quota.concurrency{server.address=busy.test,heed.reason=overload}":                                                              {Sum: 5},
		"retry_budget.remaining{}":                                     {Sum: 30},
		"quota.hold{server.address=held.test,heed.reason=retry-after}": {Sum: 53.95},
	} {
		want["heed.client."+series] = v
	}
	for series, v := range map[string]Value{
		"items{heed.batch.name=import,heed.batch.kind=job,heed.batch.state=done}":       {Sum: 2},
		"items{heed.batch.name=import,heed.batch.kind=job,heed.batch.state=failed}":     {Sum: 1},
		"items{heed.batch.name=import,heed.batch.kind=job,heed.batch.state=unknown}":    {},
		"items{heed.batch.name=import,heed.batch.kind=job,heed.batch.state=running}":    {},
		"items{heed.batch.name=import,heed.batch.kind=job,heed.batch.state=waiting}":    {},
		"items{heed.batch.name=events,heed.batch.kind=outbox,heed.batch.state=done}":    {},
		"items{heed.batch.name=events,heed.batch.kind=outbox,heed.batch.state=failed}":  {},
		"items{heed.batch.name=events,heed.batch.kind=outbox,heed.batch.state=unknown}": {},
		"items{heed.batch.name=events,heed.batch.kind=outbox,heed.batch.state=waiting}": {},
		"time_left{heed.batch.name=import,heed.batch.kind=job}":                         {},
		"time_left{heed.batch.name=events,heed.batch.kind=outbox}":                      {},
		"first_age{heed.batch.name=events}":                                             {},
	} {
		want["heed.batch."+series] = v
	}
	for series, v := range map[string]Value{
		"server.requests{heed.limit.name=five,heed.result=acquired}":                {Sum: 5},
		"server.requests{heed.limit.name=five,heed.result=rejected}":                {Sum: 1},
		"server.requests{heed.limit.name=slow,heed.result=acquired}":                {Sum: 2},
		"server.requests{heed.limit.name=rule,heed.result=over_limit}":              {Sum: 1},
		"server.near_limit{heed.limit.name=five}":                                   {Sum: 1},
		"server.request.time_in_queue{heed.limit.name=slow,heed.result=acquired}":   {1, 3},
		"store.operation.duration{heed.store.operation=reserve}":                    {1, .01},
		"store.operation.duration{heed.store.operation=reserve,error.type=timeout}": {1, .05},
		"store.degraded{heed.store.mode=share,error.type=errors.errorString}":       {Sum: 1},
	} {
		want["heed."+series] = v
	}
	return want
}

// brokenType is the error.type of a brokenError.
const brokenType = "github.com/heed-go/heed/internal/metricstest.brokenError"

// Series returns the name of a series as Want has it.
func Series(name string, keys []string, value func(key string) string) string {
	s, sep := name+"{", ""
	for _, k := range keys {
		if v := value(k); v != "" {
			s += sep + k + "=" + v
			sep = ","
		}
	}
	return s + "}"
}

// Equal fails the test unless got has the values of Want.
func Equal(t *testing.T, got map[string]Value) {
	want := Want()
	for series, v := range got {
		w, ok := want[series]
		if !ok {
			t.Errorf("unexpected series %s: %v", series, v)
			continue
		}
		if w.Count != v.Count || math.Abs(w.Sum-v.Sum) > 1e-6 {
			t.Errorf("%s is %v, not %v", series, v, w)
		}
		delete(want, series)
	}
	for series := range want {
		t.Errorf("no series %s in %v", series, got)
	}
}
