package metrics

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/quota"
)

// A Point is a value of a gauge.
type Point struct {
	Instrument *Instrument
	Value      float64
	Labels     Labels
}

// maxSeries is the maximum number of quotas that Gauges describes.
const maxSeries = 500

// Gauges returns the values of all gauges. A nil Tracker, Budget and Monitor have none.
func (r *Recorder) Gauges(t *quota.Tracker, b *backoff.Budget, m *batch.Monitor) []Point {
	all, now := r.queuedPoints(), time.Now()
	all = append(all, r.batchPoints(m.Snapshot(), now)...)
	if t != nil {
		s := t.Snapshot(r.max)
		all, now = append(all, r.Quotas(s)...), s.At
	}
	if b == nil {
		return all
	}
	if allowed := b.Allowance(now); allowed < math.MaxInt64 {
		all = append(all, Point{Instrument: &budgetRemaining, Value: float64(max(allowed-b.Snapshot(now).Retries, 0))})
	}
	return all
}

// queuedPoints returns the numbers of requests that wait: for each of the limits for which most
// requests wait, and for the other ones together.
func (r *Recorder) queuedPoints() (all []Point) {
	r.mu.Lock()
	queued := maps.Clone(r.queued)
	r.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(queued), func(a, b queueKey) int {
		return cmp.Or(cmp.Compare(queued[b], queued[a]), strings.Compare(a.limit, b.limit), strings.Compare(a.reason, b.reason))
	})
	counts := map[Labels]float64{}
	for i, k := range keys {
		l := Labels{validValue(k.limit), k.reason}
		if i >= r.max {
			l[0] = otherValue
		}
		counts[l] += float64(queued[k])
	}
	return appendPoints(nil, &clientQueued, counts)
}

// Quotas returns the values of the gauges for quotas. Where several accounts of a host have a
// quota of the same name, they describe the one with the smallest part left. All servers of s keep
// their names, because s has those that matter most.
func (r *Recorder) Quotas(s quota.Snapshot) (all []Point) {
	quotas := map[Labels]quota.LimitSnapshot{}
	holds, rates, bounds := map[Labels]float64{}, map[Labels]float64{}, map[Labels]float64{}
	for _, a := range s.Shown {
		srv := serverOf(hostKey{"https", a.Host})
		for _, q := range a.Quotas {
			if h := q.Hold; h != nil {
				l := Labels{srv.address, srv.port, h.Reason}
				holds[l] = max(holds[l], h.Until.Sub(s.At).Seconds())
			}
			if q.Rate > 0 {
				keepLeast(rates, Labels{srv.address, srv.port}, q.Rate)
			}
			if q.Concurrency > 0 {
				keepLeast(bounds, Labels{srv.address, srv.port, q.ConcurrencyReason}, float64(q.Concurrency))
			}
			for _, limit := range q.Limits {
				l := Labels{srv.address, srv.port, r.quotas.value(limit.Name), r.units.value(limit.Unit), known(limit)}
				if old, ok := quotas[l]; (!ok && len(quotas) < maxSeries) || ok && used(limit) > used(old) {
					quotas[l] = limit
				}
			}
		}
	}
	for l, q := range quotas {
		all = append(all, limitPoints(q, l, s.At)...)
	}
	all = appendPoints(all, &quotaHold, holds)
	all = appendPoints(all, &quotaRate, rates)
	return appendPoints(all, &quotaConcurrency, bounds)
}

// keepLeast sets values[l] to v if it is not less already.
func keepLeast(values map[Labels]float64, l Labels, v float64) {
	if old, ok := values[l]; !ok || v < old {
		values[l] = v
	}
}

// appendPoints appends the values of i to all.
func appendPoints(all []Point, i *Instrument, values map[Labels]float64) []Point {
	for l, v := range values {
		all = append(all, Point{i, v, l})
	}
	return all
}

// limitPoints returns the values of the gauges for q as of now.
func limitPoints(q quota.LimitSnapshot, l Labels, now time.Time) (all []Point) {
	if q.Size > 0 {
		all = append(all, Point{&quotaLimit, float64(q.Size), l})
	}
	if q.RemainingKnown {
		all = append(all, Point{&quotaRemaining, float64(q.Remaining), l})
	}
	if q.RemainingKnown && q.Size > 0 {
		all = append(all, Point{&quotaUtilization, used(q), l})
	}
	if !q.Reset.IsZero() {
		all = append(all, Point{&quotaReset, max(q.Reset.Sub(now).Seconds(), 0), l})
	}
	return all
}

// known returns how q is known: the server states it, it is learned from rejections, or the program
// has declared it.
func known(q quota.LimitSnapshot) string {
	switch {
	case q.Learned:
		return "learned"
	case q.Declared:
		return "declared"
	}
	return "stated"
}

// used returns the used part of q, 0 if it is not known.
func used(q quota.LimitSnapshot) float64 {
	if !q.RemainingKnown || q.Size <= 0 {
		return 0
	}
	return min(max(float64(q.Size-q.Remaining)/float64(q.Size), 0), 1)
}
