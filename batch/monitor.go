package batch

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// A Monitor knows the jobs and Outboxes of a program, for debugpage.Page and for the metrics of
// packages otelheed and promheed. Options.Monitor and OutboxConfig.Monitor add them. The zero
// Monitor is ready to use. It is safe for concurrent use, and must not be copied.
//
// It has the jobs that run, the Outboxes that are open, and the latest 20 jobs that have ended. A
// job that begins replaces one with its name that has ended.
type Monitor struct {
	mu     sync.Mutex
	active []activity // in the order in which they began
	ended  []Snapshot // of jobs, the latest last; at most maxEnded
}

// maxEnded is the number of jobs that have ended that a Monitor keeps.
const maxEnded = 20

// An activity is a job or an Outbox.
type activity interface{ observe(now time.Time) Snapshot }

// A Snapshot is the state of a job or an Outbox at one moment.
type Snapshot struct {
	// Name is Options.Job or OutboxConfig.Name. Several jobs and Outboxes can have one name.
	Name string

	// Outbox is true for an Outbox, and false for a job.
	Outbox bool

	// Done is the number of items that are done, including those that earlier processes have
	// done, or the number of requests that were delivered since the Outbox was opened.
	Done int

	// Failed is the number of items that failed, or of requests that left the Outbox since it
	// was opened because they were rejected or had expired.
	Failed int

	// Unknown is the number of items or requests with an unknown outcome, see ErrInterrupted.
	Unknown int

	// Running is the number of items that are being processed, including those that wait for
	// the end of a pause. It is zero for an Outbox.
	Running int

	// Waiting is the number of items that have not begun, or of requests in the Outbox. It is
	// -1 if Options.Total is not set.
	Waiting int

	// Rate is the number of items or requests per second that ended or left the Outbox: in
	// about the last minute, or since the last Snapshot if that is longer ago. Pauses of a job,
	// and times in which an Outbox is empty, do not count. Zero means that there was none.
	Rate float64

	// TimeLeft is an estimate of the time until nothing is left, at that rate and with the rest
	// of a pause. Zero means that it is not known, or that nothing is left.
	TimeLeft time.Duration

	// PausedUntil is the end of a pause of the job, or of the delay after which the Outbox sends
	// its first request again. Zero means that there is none.
	PausedUntil time.Time

	// FirstSince is when the first request of the Outbox became the first. A time long ago means
	// that the Outbox does not advance. Zero means that it is empty, or a job.
	FirstSince time.Time

	// Ended is when the job ended. Zero means that it has not.
	Ended time.Time

	// Failure is the error with which the job ended, or the failure of the first request of an
	// Outbox, without the user, query and fragment of URLs. Empty means that there is none.
	Failure string
}

// Snapshot returns the states of the jobs that run and the Outboxes that are open, in the order
// in which they began, and then those of the jobs that have ended, the latest first. A nil Monitor
// has none.
func (m *Monitor) Snapshot() []Snapshot {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	active, ended := slices.Clone(m.active), slices.Clone(m.ended)
	m.mu.Unlock()
	all, now := make([]Snapshot, 0, len(active)+len(ended)), time.Now()
	for _, a := range active {
		all = append(all, a.observe(now))
	}
	slices.Reverse(ended)
	return append(all, ended...)
}

// add adds a job that begins or an Outbox that was opened.
func (m *Monitor) add(a activity, name string) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active = append(m.active, a)
	if _, isJob := a.(*job); isJob {
		m.ended = slices.DeleteFunc(m.ended, func(s Snapshot) bool { return s.Name == name })
	}
}

// remove removes an Outbox that was closed, or a job that has ended with the given state.
func (m *Monitor) remove(a activity, ended ...Snapshot) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active = slices.DeleteFunc(m.active, func(other activity) bool { return other == a })
	m.ended = append(m.ended, ended...)
	m.ended = slices.Delete(m.ended, 0, max(len(m.ended)-maxEnded, 0))
}

// monitor adds j to Options.Monitor until the returned function is called with the error of the
// job.
func (j *job) monitor() (end func(error)) {
	m := j.o.Monitor
	m.add(j, j.o.Job)
	return func(err error) {
		if m == nil {
			return
		}
		s := j.observe(time.Now())
		s.Ended, s.PausedUntil, s.Running, s.Rate, s.TimeLeft = time.Now(), time.Time{}, 0, 0, 0
		if err != nil {
			s.Failure = storedText(err)
		}
		m.remove(j, s)
	}
}

// observe implements activity.
func (j *job) observe(now time.Time) Snapshot {
	p, rate := j.progress(now)
	s := Snapshot{
		Name: j.o.Job, Done: p.Done, Failed: p.Failed, Unknown: p.Unknown, Running: p.Running, Waiting: p.Left(),
		Rate: rate, TimeLeft: p.TimeLeft, PausedUntil: p.PausedUntil,
	}
	if s.Waiting >= 0 {
		s.Waiting = max(s.Waiting-s.Running, 0)
	}
	return s
}

// A delivered counts the requests that left an Outbox, and the time for which it held any.
type delivered struct {
	done, failed, unknown int

	firstSince time.Time     // when the first request became the first; zero: the Outbox is empty
	busySince  time.Time     // since when the Outbox has held requests; zero: it is empty
	busy       time.Duration // before busySince
	estimate   estimator
}

// begin begins the time in which the Outbox holds requests, unless it has begun.
func (d *delivered) begin(now time.Time) {
	if d.busySince.IsZero() {
		d.busySince, d.firstSince = now, now
	}
}

// count counts a request that left the Outbox, which holds left requests now. The error is that
// of its Delivery.
func (d *delivered) count(err error, now time.Time, left int) {
	switch {
	case err == nil:
		d.done++
	case errors.Is(err, ErrInterrupted):
		d.unknown++
	default:
		d.failed++
	}
	d.firstSince = now
	if left == 0 {
		d.busy += now.Sub(d.busySince)
		d.firstSince, d.busySince = time.Time{}, time.Time{}
	}
}

// rate returns the number of requests per second that left the Outbox.
func (d *delivered) rate(now time.Time) float64 {
	busy := d.busy
	if !d.busySince.IsZero() {
		busy += now.Sub(d.busySince)
	}
	return d.estimate.rate(sample{processed: d.done + d.failed + d.unknown, active: busy})
}

// observe implements activity.
func (o *Outbox) observe(now time.Time) Snapshot {
	o.mu.Lock()
	defer o.mu.Unlock()
	d := &o.delivered
	s := Snapshot{
		Name: o.c.Name, Outbox: true, Done: d.done, Failed: d.failed, Unknown: d.unknown, Waiting: len(o.entries),
		Rate: d.rate(now), PausedUntil: o.state.NextTry, FirstSince: d.firstSince,
	}
	s.TimeLeft = timeFor(s.Waiting, s.Rate)
	if o.state.LastError != nil {
		s.Failure = storedText(o.state.LastError)
	}
	return s
}
