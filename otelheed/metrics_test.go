package otelheed

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/metrics"
	"github.com/heed-go/heed/internal/metricstest"
)

// collect returns the values of all series of a reader, and the metrics themselves.
func collect(t *testing.T, reader sdkmetric.Reader) (map[string]metricstest.Value, []metricdata.Metrics) {
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	values := map[string]metricstest.Value{}
	require.LessOrEqual(t, len(all.ScopeMetrics), 1)
	if len(all.ScopeMetrics) == 0 {
		return values, nil
	}
	require.Equal(t, ScopeName, all.ScopeMetrics[0].Scope.Name)
	require.Contains(t, all.ScopeMetrics[0].Scope.SchemaURL, "https://opentelemetry.io/schemas/1.")
	for _, m := range all.ScopeMetrics[0].Metrics {
		add := func(set attribute.Set, v metricstest.Value) {
			values[metricstest.Series(m.Name, instrumentOf(t, m.Name).Attributes, func(key string) string {
				a, _ := set.Value(attribute.Key(key))
				return a.String()
			})] = v
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, metricstest.Value{Sum: float64(p.Value)})
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, metricstest.Value{Sum: p.Value})
			}
		case metricdata.Histogram[int64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, metricstest.Value{Count: p.Count, Sum: float64(p.Sum)})
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, metricstest.Value{Count: p.Count, Sum: p.Sum})
			}
		default:
			t.Errorf("%s is a %T", m.Name, m.Data)
		}
	}
	return values, all.ScopeMetrics[0].Metrics
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

// TestTelemetry_recordsEveryInstrument plays the script and compares the values of all series.
func TestTelemetry_recordsEveryInstrument(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		tracker, clock := metricstest.NewTracker()
		telemetry, err := New(Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), Quota: tracker, Budget: metricstest.NewBudget(), Batches: metricstest.NewMonitor(t)})
		require.NoError(t, err)
		var waiting []metricdata.Metrics // while a request waits
		metricstest.Run(t, telemetry, tracker, clock, func() {
			var values map[string]metricstest.Value
			values, waiting = collect(t, reader)
			require.Equal(t, metricstest.Value{Sum: 1}, values["heed.client.queued_requests{heed.limit.name=own}"], "while it waits")
		})
		values, all := collect(t, reader)
		metricstest.Equal(t, values)

		described := map[string]metricdata.Metrics{}
		for _, m := range slices.Concat(waiting, all) {
			described[m.Name] = m
		}
		for _, i := range metrics.Instruments() {
			m := described[i.Name]
			require.Equal(t, []string{i.Name, i.Unit, i.Description}, []string{m.Name, m.Unit, m.Description})
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
				require.Equal(t, []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120}, h.DataPoints[0].Bounds)
			}
		}

		require.NoError(t, telemetry.Close())
		values, _ = collect(t, reader)
		for series := range values {
			require.NotContains(t, series, "heed.client.quota.")
			require.NotContains(t, series, "heed.client.retry_budget.")
		}
	})
}

// TestTelemetry_aServerThatIsNotUsedGivesItsNameToAnother names one server. The
// MeterProvider keeps the series of the old one.
func TestTelemetry_aServerThatIsNotUsedGivesItsNameToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdkmetric.NewManualReader()
		telemetry, err := New(Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), MaxServers: 1})
		require.NoError(t, err)
		tr := &heed.Transport{Trace: telemetry.Trace(), Base: respond(200, 200, 200)}
		for _, host := range []string{"a.test", "b.test", "a.test"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host+"/", http.NoBody)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			if host == "a.test" {
				time.Sleep(10 * time.Minute)
			}
		}
		values, _ := collect(t, reader)
		for _, host := range []string{"a.test", "b.test", "_OTHER"} {
			require.Equal(t, metricstest.Value{Sum: 1}, values["heed.client.attempts{server.address="+host+",http.response.status_code=200}"], host)
		}
	})
}
