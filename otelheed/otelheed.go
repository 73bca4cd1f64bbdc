package otelheed

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/internal/metrics"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// ScopeName is the name of the instrumentation scope of all metrics and spans.
const ScopeName = "github.com/heed-go/heed/otelheed"

// Version returns the version of this module in the running program, such as "v0.1.0". It is
// empty if the program was built without module information.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == ScopeName {
			return m.Version
		}
	}
	return ""
}

// A Config holds the settings of New. The zero Config uses the global providers and reports
// no quotas and no retry budget.
type Config struct {
	// MeterProvider provides the meter. Nil means the global provider.
	MeterProvider metric.MeterProvider

	// TracerProvider provides the tracer. Nil means the global provider.
	TracerProvider trace.TracerProvider

	// Quota is the Tracker whose quotas and holds are reported at each collection: those of at
	// most MaxServers accounts, see quota.Tracker.Snapshot. It must be that of
	// heed.Transport.Quota. Nil means that heed.client.quota metrics are not reported.
	Quota *quota.Tracker

	// Budget is the retry budget whose remaining retries are reported at each collection: that
	// of heed.RetryPolicy.Budget. Nil means that they are not reported.
	Budget *backoff.Budget

	// Batches is the Monitor whose jobs and Outboxes are reported at each collection, at most MaxServers
	// names. Nil means that they are not reported.
	Batches *batch.Monitor

	// MaxServers is the maximum number of servers, and of limits, that have attributes of their
	// own; the others are "_OTHER". A new one takes the place of the one that was not used for
	// the longest time, if that is at least 10 minutes. The MeterProvider keeps what it has of
	// the old one, up to its own limit of attribute sets. Zero or less means 100.
	MaxServers int
}

// Telemetry exports metrics and spans. It is safe for concurrent use. One Telemetry serves any
// number of Transports, Middlewares and stores.
type Telemetry struct {
	recorder *metrics.Recorder
	tracer   trace.Tracer
	gauges   metric.Registration
}

// New returns a Telemetry. The error is that of the MeterProvider.
func New(c Config) (*Telemetry, error) {
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	meter := c.MeterProvider.Meter(ScopeName, metric.WithInstrumentationVersion(Version()), metric.WithSchemaURL(semconv.SchemaURL))
	s, err := newSink(meter)
	if err != nil {
		return nil, fmt.Errorf("otelheed: New: %w", err)
	}
	t := &Telemetry{
		recorder: metrics.NewRecorder(s, c.MaxServers),
		tracer:   c.TracerProvider.Tracer(ScopeName, trace.WithInstrumentationVersion(Version()), trace.WithSchemaURL(semconv.SchemaURL)),
	}
	if t.gauges, err = registerGauges(meter, func() []metrics.Point { return t.recorder.Gauges(c.Quota, c.Budget, c.Batches) }); err != nil {
		return nil, fmt.Errorf("otelheed: New: %w", err)
	}
	return t, nil
}

// Close ends the reports of quotas, of the retry budget and of waiting requests. It is needed
// only if a program creates more than one Telemetry for the same Tracker.
func (t *Telemetry) Close() error { return t.gauges.Unregister() }

// Trace returns a Trace for heed.Transport.Trace, which records the metrics of calls and adds
// spans and events to the spans of callers.
func (t *Telemetry) Trace() *heed.Trace {
	return heed.JoinTraces(t.recorder.ClientTrace(), spans{t.tracer, t.recorder}.trace())
}

// RoundTripper returns a RoundTripper that sets http.request.resend_count on the span of each
// attempt that is not the first, and sends the request with base. It belongs below
// otelhttp.Transport, which starts that span. A nil base means http.DefaultTransport.
func (t *Telemetry) RoundTripper(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	return &resendCounter{base}
}

// Middleware returns a Trace for throttlehttp.Middleware.Trace, which records its decisions.
func (t *Telemetry) Middleware() *throttlehttp.Trace { return t.recorder.MiddlewareTrace() }

// ServerQueue returns a Trace for the Queue of a throttlehttp.Middleware, which records the
// waits in it.
func (t *Telemetry) ServerQueue() *queue.Trace { return t.recorder.ServerQueueTrace() }

// Decision records the decision d of the limit with a name about a request of a client. It is
// for monitor.Registry.OnDecision, and for limiters without a Middleware. A Middleware whose
// decisions are recorded, too, would count them twice.
func (t *Telemetry) Decision(limit string, d throttle.Decision) { t.recorder.ServerDecision(limit, d) }

// StoreOperation records a call to the store of shared limits, with its name, duration and
// error. It is for throttleredis.Store.OnOperation.
func (t *Telemetry) StoreOperation(name string, took time.Duration, err error) {
	t.recorder.StoreOperation(name, took, err)
}

// StoreDegraded records that a decision was made without the store, because of err. It is for
// throttleredis.Fallback.OnDegraded.
func (t *Telemetry) StoreDegraded(mode string, err error) { t.recorder.StoreDegraded(mode, err) }
