package promheed

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/metrics"
	"github.com/heed-go/heed/internal/metricstest"
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
	collector, registry := New(Config{Quota: tracker}), prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(collector))
	synctest.Test(t, func(t *testing.T) {
		metricstest.Run(t, collector, tracker, clock, func() {
			require.InEpsilon(t, 1, testutil.ToFloat64(collector.vectors[instrumentOf(t, "heed.client.queued_requests")].Collector.(*prometheus.GaugeVec).WithLabelValues("own", "")), 1e-9, "while it waits")
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

func instrumentOf(t *testing.T, name string) *metrics.Instrument {
	for _, i := range metrics.Instruments() {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("%s is not an instrument", name)
	return nil
}

func TestCollector_withoutATrackerHasNoQuotas(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(New(Config{})))
	require.Empty(t, scrape(t, registry))
}
