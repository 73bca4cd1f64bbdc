package metrics_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/metrics"
	"github.com/heed-go/heed/internal/metricstest"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// An exporter is a Sink that adds the values of each series.
type exporter struct {
	recorder *metrics.Recorder
	mu       sync.Mutex
	values   map[string]metricstest.Value
}

func (e *exporter) Record(_ context.Context, i *metrics.Instrument, v float64, l metrics.Labels) {
	series := seriesOf(i, l)
	e.mu.Lock()
	defer e.mu.Unlock()
	sum := e.values[series]
	sum.Sum += v
	if i.Kind == metrics.Histogram {
		sum.Count++
	}
	e.values[series] = sum
}

func (e *exporter) Forget([]string, []string) {}

func (e *exporter) Trace() *heed.Trace              { return e.recorder.ClientTrace() }
func (e *exporter) Middleware() *throttlehttp.Trace { return e.recorder.MiddlewareTrace() }
func (e *exporter) ServerQueue() *queue.Trace       { return e.recorder.ServerQueueTrace() }

func (e *exporter) Decision(limit string, d throttle.Decision) { e.recorder.ServerDecision(limit, d) }

func (e *exporter) StoreOperation(name string, took time.Duration, err error) {
	e.recorder.StoreOperation(name, took, err)
}

func (e *exporter) StoreDegraded(mode string, err error) { e.recorder.StoreDegraded(mode, err) }

func seriesOf(i *metrics.Instrument, l metrics.Labels) string {
	values := map[string]string{}
	for n, key := range i.Attributes {
		values[key] = l[n]
	}
	return metricstest.Series(i.Name, i.Attributes, func(key string) string { return values[key] })
}

// TestRecorder_playsTheScript checks every series after the script that the tests of packages
// otelheed and promheed play, too.
func TestRecorder_playsTheScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &exporter{values: map[string]metricstest.Value{}}
		e.recorder = metrics.NewRecorder(e, 0)
		tracker, clock := metricstest.NewTracker()
		var queued []metrics.Point
		metricstest.Run(t, e, tracker, clock, func() { queued = e.recorder.Gauges(nil, nil, nil) })
		require.Len(t, queued, 1)
		require.Equal(t, "heed.client.queued_requests{heed.limit.name=own}", seriesOf(queued[0].Instrument, queued[0].Labels))
		require.InDelta(t, 1, queued[0].Value, 0)
		for _, p := range e.recorder.Gauges(tracker, metricstest.NewBudget(), metricstest.NewMonitor(t)) {
			e.values[seriesOf(p.Instrument, p.Labels)] = metricstest.Value{Sum: p.Value}
		}
		metricstest.Equal(t, e.values)
	})
}
