package metrics

import (
	"time"

	"github.com/heed-go/heed/batch"
)

// batchPoints returns the values of the gauges for jobs and Outboxes as of now. The items of those
// with the same name are added; of their times, the longest counts.
func (r *Recorder) batchPoints(snapshots []batch.Snapshot, now time.Time) (all []Point) {
	names := map[string]bool{}
	items, left, ages := map[Labels]float64{}, map[Labels]float64{}, map[Labels]float64{}
	for _, s := range snapshots {
		name, kind := validValue(s.Name), "job"
		if s.Outbox {
			kind = "outbox"
		}
		if !names[name] && len(names) >= r.max {
			name = otherValue
		}
		names[name] = true
		items[Labels{name, kind, "done"}] += float64(s.Done)
		items[Labels{name, kind, "failed"}] += float64(s.Failed)
		items[Labels{name, kind, "unknown"}] += float64(s.Unknown)
		if s.Waiting >= 0 {
			items[Labels{name, kind, "waiting"}] += float64(s.Waiting)
		}
		l := Labels{name, kind}
		if s.TimeLeft > 0 || s.Waiting == 0 && s.Running == 0 || !s.Ended.IsZero() {
			left[l] = max(left[l], s.TimeLeft.Seconds())
		}
		if !s.Outbox {
			items[Labels{name, kind, "running"}] += float64(s.Running)
			continue
		}
		age := 0.
		if !s.FirstSince.IsZero() {
			age = max(now.Sub(s.FirstSince).Seconds(), 0)
		}
		ages[Labels{name}] = max(ages[Labels{name}], age)
	}
	all = appendPoints(all, &batchItems, items)
	all = appendPoints(all, &batchTimeLeft, left)
	return appendPoints(all, &batchFirstAge, ages)
}
