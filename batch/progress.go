package batch

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Progress describes the state of a job.
type Progress struct {
	// Done is the number of items that are done, including Resumed.
	Done int

	// Resumed is the number of items that earlier processes have done.
	Resumed int

	// Failed is the number of items that failed.
	Failed int

	// Unknown is the number of items with an unknown outcome, see ErrInterrupted.
	Unknown int

	// Running is the number of items that are being processed, including those that wait for
	// the end of a pause.
	Running int

	// Total is the number of items, from Options.Total. Zero means that it is not known.
	Total int

	// Elapsed is the time since Run was called.
	Elapsed time.Duration

	// TimeLeft is an estimate of the time until the end of the job: from the rate of about
	// the last minute, and the rest of a pause. Zero means that it is not known.
	TimeLeft time.Duration

	// PausedUntil is the end of a pause because of a limit of the server. Zero means that the
	// job is not paused.
	PausedUntil time.Time
}

// Left returns the number of items that are not done, failed or unknown. It returns -1 if
// Total is not known.
func (p Progress) Left() int {
	if p.Total <= 0 {
		return -1
	}
	return max(p.Total-p.Done-p.Failed-p.Unknown, 0)
}

// String returns a line such as "1200 of 2000 done, 3 failed, 4s left".
func (p Progress) String() string {
	var b strings.Builder
	b.WriteString(strconv.Itoa(p.Done))
	if p.Total > 0 {
		b.WriteString(" of " + strconv.Itoa(p.Total))
	}
	b.WriteString(" done")
	if p.Failed > 0 {
		fmt.Fprintf(&b, ", %d failed", p.Failed)
	}
	if p.Unknown > 0 {
		fmt.Fprintf(&b, ", %d unknown", p.Unknown)
	}
	if p.TimeLeft > 0 {
		b.WriteString(", " + p.TimeLeft.Round(time.Second).String() + " left")
	}
	if !p.PausedUntil.IsZero() {
		b.WriteString(", paused until " + p.PausedUntil.Format(time.TimeOnly))
	}
	return b.String()
}

// An estimator estimates the time that is left from the latest samples.
type estimator struct {
	samples [64]sample
	n       int // samples taken
}

// A sample states how many items were processed in how much time without pauses.
type sample struct {
	processed int
	active    time.Duration
}

// maxTimeLeft bounds estimates, so that a pause can be added: 146 years.
const maxTimeLeft = 1 << 62

// add takes a sample and returns the time for left items, or 0 if it is not known.
func (e *estimator) add(s sample, left int) time.Duration {
	e.samples[e.n%len(e.samples)] = s
	e.n++
	oldest := e.samples[0]
	if e.n > len(e.samples) {
		oldest = e.samples[e.n%len(e.samples)]
	}
	processed, active := s.processed-oldest.processed, s.active-oldest.active
	if left <= 0 || processed <= 0 || active <= 0 {
		return 0
	}
	return time.Duration(min(float64(active)/float64(processed)*float64(left), maxTimeLeft))
}
