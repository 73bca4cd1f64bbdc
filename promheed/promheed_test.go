package promheed

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/metrics"
	"github.com/heed-go/heed/internal/metricstest"
	"github.com/heed-go/heed/quota"
)

// scrape returns the values of all series that a server of registry responds with, and the
// text of the response.
func scrape(t *testing.T, registry *prometheus.Registry) map[string]metricstest.Value {
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	resp, err := server.Client().Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)

	values := map[string]metricstest.Value{}
	for _, i := range metrics.Instruments() {
		f := families[metricName(i)]
		if f == nil {
			continue
		}
		require.Equal(t, i.Description, f.GetHelp())
		delete(families, metricName(i))
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			series := metricstest.Series(i.Name, i.Attributes, func(key string) string { return labels[strings.ReplaceAll(key, ".", "_")] })
			values[series] = metricstest.Value{
				Count: m.GetHistogram().GetSampleCount(),
				Sum:   m.GetHistogram().GetSampleSum() + m.GetCounter().GetValue() + m.GetGauge().GetValue(),
			}
			if i.Unit == "s" && i.Kind == metrics.Histogram {
				var bounds []float64
				for _, b := range m.GetHistogram().GetBucket() {
					bounds = append(bounds, b.GetUpperBound())
				}
				require.Equal(t, []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120}, bounds[:13])
			}
		}
	}
	require.Empty(t, families)
	return values
}

// TestCollector_recordsEveryInstrument plays the script, and compares the values of all series
// with those of a scrape over HTTP.
func TestCollector_recordsEveryInstrument(t *testing.T) {
	tracker, clock := metricstest.NewTracker()
	collector, registry := New(Config{Quota: tracker, Budget: metricstest.NewBudget(), Batches: metricstest.NewMonitor(t)}), prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	synctest.Test(t, func(t *testing.T) {
		metricstest.Run(t, collector, tracker, clock, func() {
			queued := collector.recorder.Gauges(nil, nil, nil)
			require.Len(t, queued, 1, "while it waits")
			require.Equal(t, "own", queued[0].Labels[0])
		})
	})
	metricstest.Equal(t, scrape(t, registry))

	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
	text, err := testutil.CollectAndFormat(collector, expfmt.TypeTextPlain)
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
}

func TestCollector_withoutATrackerHasNoQuotas(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(New(Config{})))
	require.Empty(t, scrape(t, registry))
}

// TestCollector_10000HostsNameTheHeldOne sends requests to 10,000 hosts. The last one asks for a
// stop.
func TestCollector_10000HostsNameTheHeldOne(t *testing.T) {
	const last = 9_999
	tracker := &quota.Tracker{}
	collector, registry := New(Config{Quota: tracker, MaxServers: 20}), prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	tr := &heed.Transport{Quota: tracker, Trace: collector.Trace(), Retry: &heed.RetryPolicy{MaxAttempts: 1}, Base: stopsAt(last)}
	once := heed.WithOptions(t.Context(), heed.RequestOptions{NoRetry: true, NoWait: true})
	send := func(i int) {
		req, err := http.NewRequestWithContext(once, http.MethodGet, fmt.Sprintf("https://h%d.test:8443/", i), http.NoBody)
		require.NoError(t, err)
		if resp, err := tr.RoundTrip(req); err == nil {
			require.NoError(t, resp.Body.Close())
		}
	}
	for i := range last {
		send(i)
	}
	for range 6 {
		send(last)
	}
	addresses, holds := map[string]bool{}, 0
	for series := range scrape(t, registry) {
		if _, rest, found := strings.Cut(series, "server.address="); found {
			address, _, _ := strings.Cut(rest, ",")
			addresses[address] = true
		}
		if strings.HasPrefix(series, "heed.client.quota.hold") {
			holds++
			require.Equal(t, "heed.client.quota.hold{server.address=h9999.test,server.port=8443,heed.reason=retry-after}", series)
		}
	}
	require.Equal(t, 1, holds)
	require.Len(t, addresses, 20+2, "with the held one and _OTHER")
	t.Logf("10,000 hosts: %d addresses, %d holds", len(addresses), holds)
}

// stopsAt is an http.RoundTripper whose host with this number asks clients to stop.
type stopsAt int

func (n stopsAt) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}
	if strings.HasPrefix(req.URL.Host, fmt.Sprintf("h%d.", int(n))) {
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", "600")
	}
	return resp, nil
}

// TestCollector_aServerThatIsNotUsedLosesItsSeries names one server.
func TestCollector_aServerThatIsNotUsedLosesItsSeries(t *testing.T) {
	collector := New(Config{MaxServers: 1})
	synctest.Test(t, func(t *testing.T) {
		tr := &heed.Transport{Trace: collector.Trace(), Base: stopsAt(-1)}
		for _, host := range []string{"a.test:8443", "b.test"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/", http.NoBody)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			time.Sleep(10 * time.Minute)
		}
	})
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	require.Equal(t, []string{
		"heed.client.attempts{server.address=b.test,http.response.status_code=200}",
		"heed.client.call.duration{http.request.method=GET,server.address=b.test,http.response.status_code=200}",
	}, slices.Sorted(maps.Keys(scrape(t, registry))))
}
