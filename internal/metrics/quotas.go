package metrics

import (
	"github.com/heed-go/heed/quota"
)

// A Point is a value of a gauge.
type Point struct {
	Instrument *Instrument
	Value      float64
	Labels     Labels
}

// maxSeries is the maximum number of quotas that Quotas describes.
const maxSeries = 500

// Quotas returns the values of the gauges for quotas. Where several accounts of a host have a
// quota of the same name, they describe the one with the smallest part left.
func (r *Recorder) Quotas(s quota.Snapshot) (all []Point) {
	quotas, holds := map[Labels]quota.LimitSnapshot{}, map[Labels]float64{}
	for _, a := range s.Shown {
		srv := r.servers.at(hostKey{"https", a.Host})
		for _, q := range a.Quotas {
			if h := q.Hold; h != nil {
				l := Labels{srv.address, srv.port, h.Reason}
				holds[l] = max(holds[l], h.Until.Sub(s.At).Seconds())
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
			all = append(all, Point{&quotaReset, max(q.Reset.Sub(s.At).Seconds(), 0), l})
		}
	}
	for l, seconds := range holds {
		all = append(all, Point{&quotaHold, seconds, l})
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
