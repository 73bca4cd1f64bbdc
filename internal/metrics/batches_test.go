package metrics

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/batch"
)

// Items of one name are added, and of times the longest counts. What is not known is not reported.
func TestRecorder_batchPoints(t *testing.T) {
	now := time.Unix(1000, 0)
	r := NewRecorder(recording{}, 2)
	values := func(snapshots ...batch.Snapshot) map[string]float64 {
		all := map[string]float64{}
		for _, p := range r.batchPoints(snapshots, now) {
			all[fmt.Sprint(p.Instrument.Name, p.Labels[:len(p.Instrument.Attributes)])] = p.Value
		}
		return all
	}
	require.Empty(t, values())
	job := batch.Snapshot{Name: "a", Done: 1, Failed: 2, Unknown: 3, Running: 4, Waiting: 5, TimeLeft: time.Minute}
	other := batch.Snapshot{Name: "a", Done: 10, Waiting: -1, Running: 1}
	want := map[string]float64{
		"heed.batch.items[a job done]": 11, "heed.batch.items[a job failed]": 2, "heed.batch.items[a job unknown]": 3,
		"heed.batch.items[a job running]": 5, "heed.batch.items[a job waiting]": 5, "heed.batch.time_left[a job]": 60,
	}
	require.Equal(t, want, values(job, other), "how many of the second are left is not known")

	outbox := batch.Snapshot{Name: "a", Outbox: true, Done: 7, Waiting: 1, FirstSince: now.Add(-time.Hour)}
	want = map[string]float64{
		"heed.batch.items[a outbox done]": 7, "heed.batch.items[a outbox failed]": 0, "heed.batch.items[a outbox unknown]": 0,
		"heed.batch.items[a outbox waiting]": 3, "heed.batch.first_age[a]": 3600,
	}
	outbox2 := batch.Snapshot{Name: "a", Outbox: true, Waiting: 2, FirstSince: now.Add(time.Minute)}
	require.Equal(t, want, values(outbox, outbox2), "the clock was set back since")

	ended := batch.Snapshot{Name: "e", Waiting: 9, Ended: now}
	require.Contains(t, values(ended), "heed.batch.time_left[e job]", "it was stopped")
	require.Contains(t, values(batch.Snapshot{Name: "o", Outbox: true}), "heed.batch.time_left[o outbox]", "it is empty")

	many := values(batch.Snapshot{Name: "a", Done: 1}, batch.Snapshot{Name: "b", Done: 1}, batch.Snapshot{Name: "c", Done: 1}, batch.Snapshot{Name: "d", Done: 1}, batch.Snapshot{Name: "a", Done: 1})
	require.InDelta(t, 2, many["heed.batch.items[_OTHER job done]"], 0)
	require.InDelta(t, 2, many["heed.batch.items[a job done]"], 0)
}
