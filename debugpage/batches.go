package debugpage

import (
	"time"

	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/internal/explain"
)

// maxBatchRows is the maximum number of jobs and Outboxes that are shown.
const maxBatchRows = 100

// A batchTable shows the jobs and Outboxes of a Monitor.
type batchTable struct {
	Rows    []batchRow `json:"rows"`
	Omitted int        `json:"omitted"`
}

// A batchRow shows a job or an Outbox.
type batchRow struct {
	Name       string     `json:"name"`
	Kind       string     `json:"kind"` // "job" or "outbox"
	Done       int        `json:"done"`
	Failed     int        `json:"failed"`
	Unknown    int        `json:"unknown"`
	Running    int        `json:"running"`
	Waiting    *int       `json:"waiting"` // nil: not known
	Rate       float64    `json:"rate"`    // per second
	TimeLeft   *float64   `json:"time_left_s"`
	PausedFor  *float64   `json:"paused_for_s"` // nil: it is not paused
	FirstSince *float64   `json:"first_since_s"`
	Ended      *time.Time `json:"ended"` // nil: it has not
	Failure    string     `json:"failure,omitempty"`

	timeLeft, pausedFor, firstSince time.Duration
}

// newBatchTable returns the state of m. A nil Monitor has no jobs.
func newBatchTable(m *batch.Monitor, now time.Time) *batchTable {
	if m == nil {
		return nil
	}
	t := &batchTable{Rows: []batchRow{}}
	for _, s := range m.Snapshot() {
		if len(t.Rows) == maxBatchRows {
			t.Omitted++
			continue
		}
		t.Rows = append(t.Rows, newBatchRow(s, now))
	}
	return t
}

func newBatchRow(s batch.Snapshot, now time.Time) batchRow {
	r := batchRow{
		Name: clean(s.Name), Kind: "job", Done: s.Done, Failed: s.Failed, Unknown: s.Unknown, Running: s.Running,
		Rate: s.Rate, Failure: clean(s.Failure), timeLeft: s.TimeLeft, pausedFor: s.PausedUntil.Sub(now),
	}
	if s.Waiting >= 0 {
		r.Waiting = &s.Waiting
	}
	if s.TimeLeft > 0 {
		r.TimeLeft = secondsOf(s.TimeLeft)
	}
	if r.pausedFor > 0 {
		r.PausedFor = secondsOf(r.pausedFor)
	}
	if !s.Ended.IsZero() {
		r.Ended = &s.Ended
	}
	if s.Outbox {
		r.Kind = "outbox"
	}
	if !s.FirstSince.IsZero() {
		r.firstSince = max(now.Sub(s.FirstSince), 0)
		r.FirstSince = secondsOf(r.firstSince)
	}
	return r
}

func secondsOf(d time.Duration) *float64 {
	s := seconds(d)
	return &s
}

// State returns the CSS class of the row: "held", "slow" or "ok".
func (r batchRow) State() string {
	switch {
	case r.PausedFor != nil:
		return "held"
	case r.Failure != "" || r.Failed+r.Unknown > 0:
		return "slow"
	}
	return "ok"
}

// StateText returns what the job or the Outbox does.
func (r batchRow) StateText() string {
	switch {
	case r.Ended != nil && r.Failure != "":
		return "ended with an error"
	case r.Ended != nil:
		return "ended"
	case r.PausedFor != nil && r.Kind == "outbox":
		return "first request is sent again in " + explain.Duration(r.pausedFor)
	case r.PausedFor != nil:
		return "paused for " + explain.Duration(r.pausedFor)
	case r.Kind == "outbox" && r.FirstSince == nil:
		return "empty"
	case r.Kind == "outbox":
		return "sends the first request since " + explain.Duration(r.firstSince)
	}
	return "runs"
}

// TimeLeftText returns the estimated time until nothing is left.
func (r batchRow) TimeLeftText() string {
	if r.TimeLeft == nil {
		return "not known"
	}
	return explain.Duration(r.timeLeft)
}
