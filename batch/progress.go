package batch

import (
	"fmt"
	"slices"
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

// An estimator measures the rate at which something is processed in about the last minute.
type estimator struct {
	samples []sample // oldest first, at least minSample apart; only the first is older than rateWindow
}

// A sample states how many items were processed in how much time without pauses.
type sample struct {
	processed int
	active    time.Duration
}

const (
	rateWindow = time.Minute
	minSample  = time.Second

	// maxTimeLeft bounds estimates, so that a pause can be added: 146 years.
	maxTimeLeft = 1 << 62
)

// rate takes a sample and returns the number of items per second, or 0 if it is not known.
func (e *estimator) rate(s sample) float64 {
	if e.samples == nil {
		e.samples = []sample{{}} // nothing was processed at the beginning
	}
	for len(e.samples) > 1 && s.active-e.samples[1].active >= rateWindow {
		e.samples = slices.Delete(e.samples, 0, 1)
	}
	oldest, latest := e.samples[0], e.samples[len(e.samples)-1]
	if s.active-latest.active >= minSample {
		e.samples = append(e.samples, s)
	}
	processed, active := s.processed-oldest.processed, s.active-oldest.active
	if processed <= 0 || active <= 0 {
		return 0
	}
	return float64(processed) / active.Seconds()
}

// timeFor returns the time for n items at a rate per second, or 0 if it is not known.
func timeFor(n int, rate float64) time.Duration {
	if n <= 0 || rate <= 0 {
		return 0
	}
	return time.Duration(min(float64(n)/rate*float64(time.Second), maxTimeLeft))
}
