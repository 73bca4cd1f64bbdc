package dashboard

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/internal/metricstest"
	"github.com/heed-go/heed/otelheed"
	"github.com/heed-go/heed/promheed"
)

// series returns the names of all metrics of a registry with those of their labels.
func series(t *testing.T, registry *prometheus.Registry) (all []string) {
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		labels := map[string]bool{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = labels[l.GetName()] || l.GetValue() != ""
			}
		}
		line := f.GetName() + " " + f.GetType().String()
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			if labels[name] && !strings.HasPrefix(name, "otel_scope_") {
				line += " " + name
			}
		}
		if f.GetName() != "target_info" {
			all = append(all, line)
		}
	}
	return all
}

// TestNames_areThoseOfOpenTelemetry compares the names and labels of promheed with those that
// OpenTelemetry's exporter for Prometheus gives to the metrics of otelheed, so that the
// dashboard and the alerts work with both.
func TestNames_areThoseOfOpenTelemetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours := prometheus.NewPedanticRegistry()
		tracker, clock := metricstest.NewTracker()
		batches := &batch.Monitor{}
		runJob(t, batches)
		outbox, err := batch.OpenOutbox(batch.OutboxConfig{Name: "events", Monitor: batches})
		require.NoError(t, err)
		defer outbox.Close(t.Context())
		collector := promheed.New(promheed.Config{Quota: tracker, Budget: metricstest.NewBudget(), Batches: batches})
		require.NoError(t, ours.Register(collector))
		metricstest.Run(t, collector, tracker, clock, func() {})

		theirs := prometheus.NewRegistry()
		exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(theirs))
		require.NoError(t, err)
		tracker, clock = metricstest.NewTracker()
		telemetry, err := otelheed.New(otelheed.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), Quota: tracker, Budget: metricstest.NewBudget(), Batches: batches})
		require.NoError(t, err)
		metricstest.Run(t, telemetry, tracker, clock, func() {})
		require.Contains(t, series(t, ours), "heed_batch_first_age_seconds GAUGE heed_batch_name")
		require.Equal(t, series(t, theirs), series(t, ours))
	})
}
