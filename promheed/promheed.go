package promheed

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/internal/metrics"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// A Config holds the settings of New. The zero Config reports no quotas and no retry budget.
type Config struct {
	// Quota is the Tracker whose quotas and holds are reported at each scrape: those of at most
	// MaxServers accounts, see quota.Tracker.Snapshot. It must be that of heed.Transport.Quota.
	// Nil means that heed_client_quota metrics are not reported.
	Quota *quota.Tracker

	// Budget is the retry budget whose remaining retries are reported at each scrape: that of
	// heed.RetryPolicy.Budget. Nil means that they are not reported.
	Budget *backoff.Budget

	// Batches is the Monitor whose jobs and Outboxes are reported at each scrape, at most MaxServers
	// names. Nil means that they are not reported.
	Batches *batch.Monitor

	// MaxServers is the maximum number of servers, and of limits, that have labels of their own;
	// the others are "_OTHER". A new one takes the place of the one that was not used for the
	// longest time, if that is at least 10 minutes. Zero or less means 100.
	MaxServers int
}

// A Collector is a prometheus.Collector, to be registered once. It is safe for concurrent use.
// One Collector serves any number of Transports, Middlewares and stores.
type Collector struct {
	recorder *metrics.Recorder
	vectors  sink
	gauges   map[*metrics.Instrument]*prometheus.Desc
	config   Config
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector.
func New(c Config) *Collector {
	k := &Collector{vectors: sink{}, gauges: map[*metrics.Instrument]*prometheus.Desc{}, config: c}
	for _, i := range metrics.Instruments() {
		if i.Kind == metrics.Gauge {
			k.gauges[i] = prometheus.NewDesc(metricName(i), i.Description, labelNames(i), nil)
		} else {
			k.vectors[i] = newVector(i)
		}
	}
	k.recorder = metrics.NewRecorder(k.vectors, c.MaxServers)
	return k
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, v := range c.vectors {
		v.Describe(descs)
	}
	for _, d := range c.gauges {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	for _, v := range c.vectors {
		v.Collect(to)
	}
	for _, p := range c.recorder.Gauges(c.config.Quota, c.config.Budget, c.config.Batches) {
		to <- prometheus.MustNewConstMetric(c.gauges[p.Instrument], prometheus.GaugeValue, p.Value, p.Labels[:len(p.Instrument.Attributes)]...)
	}
}

// Trace returns a Trace for heed.Transport.Trace, which records the metrics of calls.
func (c *Collector) Trace() *heed.Trace { return c.recorder.ClientTrace() }

// Middleware returns a Trace for throttlehttp.Middleware.Trace, which records its decisions.
func (c *Collector) Middleware() *throttlehttp.Trace { return c.recorder.MiddlewareTrace() }

// ServerQueue returns a Trace for the Queue of a throttlehttp.Middleware, which records the
// waits in it.
func (c *Collector) ServerQueue() *queue.Trace { return c.recorder.ServerQueueTrace() }

// Decision records the decision d of the limit with a name about a request of a client. It is
// for monitor.Registry.OnDecision, and for limiters without a Middleware. A Middleware whose
// decisions are recorded, too, would count them twice.
func (c *Collector) Decision(limit string, d throttle.Decision) { c.recorder.ServerDecision(limit, d) }

// StoreOperation records a call to the store of shared limits, with its name, duration and
// error. It is for throttleredis.Store.OnOperation.
func (c *Collector) StoreOperation(name string, took time.Duration, err error) {
	c.recorder.StoreOperation(name, took, err)
}

// StoreDegraded records that a decision was made without the store, because of err. It is for
// throttleredis.Fallback.OnDegraded.
func (c *Collector) StoreDegraded(mode string, err error) { c.recorder.StoreDegraded(mode, err) }

// A vector holds the series of one instrument.
type vector struct {
	prometheus.Collector
	record func(value float64, labels []string)
	remove func(labels prometheus.Labels) int
}

// A sink passes measurements to vectors.
type sink map[*metrics.Instrument]vector

// Record implements metrics.Sink.
func (s sink) Record(_ context.Context, i *metrics.Instrument, value float64, l metrics.Labels) {
	s[i].record(value, l[:len(i.Attributes)])
}

// Forget implements metrics.Sink.
func (s sink) Forget(keys, values []string) {
	labels := prometheus.Labels{}
	for i, key := range keys {
		labels[labelName(key)] = values[i]
	}
	for i, v := range s {
		if slices.Contains(i.Attributes, keys[0]) {
			v.remove(labels)
		}
	}
}

func newVector(i *metrics.Instrument) vector {
	name, labels := metricName(i), labelNames(i)
	if i.Kind == metrics.Counter {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: i.Description}, labels)
		return vector{v, func(value float64, labels []string) { v.WithLabelValues(labels...).Add(value) }, v.DeletePartialMatch}
	}
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: i.Description, Buckets: i.Buckets}, labels)
	return vector{v, func(value float64, labels []string) { v.WithLabelValues(labels...).Observe(value) }, v.DeletePartialMatch}
}

// metricName returns the name that the Prometheus exporter of OpenTelemetry gives i.
func metricName(i *metrics.Instrument) string {
	name := strings.ReplaceAll(i.Name, ".", "_")
	switch {
	case i.Unit == "s":
		name += "_seconds"
	case strings.HasSuffix(i.Unit, "/s"):
		name += "_per_second"
	case i.Unit == "1" && i.Kind == metrics.Gauge:
		name += "_ratio"
	}
	if i.Kind == metrics.Counter {
		name += "_total"
	}
	return name
}

func labelNames(i *metrics.Instrument) []string {
	names := make([]string, len(i.Attributes))
	for k, key := range i.Attributes {
		names[k] = labelName(key)
	}
	return names
}

// labelName returns the name of the label for an attribute.
func labelName(key string) string { return strings.ReplaceAll(key, ".", "_") }
