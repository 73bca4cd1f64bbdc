package otelheed

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/heed-go/heed/internal/metrics"
)

// A sink passes measurements to the instruments of a meter.
type sink map[*metrics.Instrument]*instrument

// An instrument is a counter or a histogram with the attribute sets that it was used with, so
// that a measurement does not allocate.
type instrument struct {
	attributes []string
	record     func(context.Context, float64, *series)

	mu     sync.RWMutex
	series map[metrics.Labels]*series
}

// A series holds one attribute set as options of both kinds.
type series struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

// maxSeries is the maximum number of attribute sets that an instrument keeps.
const maxSeries = 2000

func newSink(meter metric.Meter) (sink, error) {
	s := sink{}
	for _, i := range metrics.Instruments() {
		if i.Kind == metrics.Gauge {
			continue
		}
		record, err := newInstrument(meter, i)
		if err != nil {
			return nil, err
		}
		s[i] = &instrument{attributes: i.Attributes, record: record, series: map[metrics.Labels]*series{}}
	}
	return s, nil
}

// newInstrument returns the function that passes measurements of i to the meter.
func newInstrument(meter metric.Meter, i *metrics.Instrument) (func(context.Context, float64, *series), error) {
	unit, description := metric.WithUnit(i.Unit), metric.WithDescription(i.Description)
	switch {
	case i.Kind == metrics.Counter:
		c, err := meter.Int64Counter(i.Name, unit, description)
		return func(ctx context.Context, v float64, s *series) { c.Add(ctx, int64(v), s.add...) }, err
	case i.Unit == "s":
		h, err := meter.Float64Histogram(i.Name, unit, description, metric.WithExplicitBucketBoundaries(i.Buckets...))
		return func(ctx context.Context, v float64, s *series) { h.Record(ctx, v, s.record...) }, err
	}
	h, err := meter.Int64Histogram(i.Name, unit, description, metric.WithExplicitBucketBoundaries(i.Buckets...))
	return func(ctx context.Context, v float64, s *series) { h.Record(ctx, int64(v), s.record...) }, err
}

// Record implements metrics.Sink.
func (s sink) Record(ctx context.Context, i *metrics.Instrument, value float64, l metrics.Labels) {
	in := s[i]
	in.record(ctx, value, in.seriesOf(l))
}

// Forget implements metrics.Sink. The meter has no method to forget attribute sets.
func (s sink) Forget(keys, values []string) {
	for i, in := range s {
		if at := slices.Index(i.Attributes, keys[0]); at >= 0 {
			in.forget(at, values)
		}
	}
}

// forget drops the attribute sets that have values from the position at on.
func (in *instrument) forget(at int, values []string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	maps.DeleteFunc(in.series, func(l metrics.Labels, _ *series) bool { return slices.Equal(l[at:at+len(values)], values) })
}

func (in *instrument) seriesOf(l metrics.Labels) *series {
	in.mu.RLock()
	s := in.series[l]
	in.mu.RUnlock()
	if s != nil {
		return s
	}
	option := metric.WithAttributeSet(attributeSet(in.attributes, l))
	s = &series{[]metric.AddOption{option}, []metric.RecordOption{option}}
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.series) < maxSeries {
		in.series[l] = s
	}
	return s
}

// attributeSet returns the attributes with the given keys whose value is set.
func attributeSet(keys []string, l metrics.Labels) attribute.Set {
	var all []attribute.KeyValue
	for i, key := range keys {
		switch value := l[i]; {
		case value == "":
		case key == metrics.Status || key == metrics.Port:
			n, err := strconv.Atoi(value)
			if err != nil {
				continue // a port that is no number cannot be connected to
			}
			all = append(all, attribute.Int(key, n))
		case key == metrics.Stated:
			all = append(all, attribute.Bool(key, value == "true"))
		default:
			all = append(all, attribute.String(key, value))
		}
	}
	return attribute.NewSet(all...)
}

// registerGauges reports what values returns at each collection.
func registerGauges(meter metric.Meter, values func() []metrics.Point) (metric.Registration, error) {
	gauges := map[*metrics.Instrument]metric.Float64ObservableGauge{}
	var all []metric.Observable
	for _, i := range metrics.Instruments() {
		if i.Kind != metrics.Gauge {
			continue
		}
		g, err := meter.Float64ObservableGauge(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description))
		if err != nil {
			return nil, err
		}
		gauges[i] = g
		all = append(all, g)
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, p := range values() {
			o.ObserveFloat64(gauges[p.Instrument], p.Value, metric.WithAttributeSet(attributeSet(p.Instrument.Attributes, p.Labels)))
		}
		return nil
	}, all...)
}
