package throttle

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A FixedWindowConfig configures NewFixedWindow.
type FixedWindowConfig struct {
	// Name is returned as Decision.Policy. Empty means the result of String.
	Name string

	// Count is the number of units in each window. It must be positive.
	Count int64

	// Align determines where windows begin. Zero means AtEpoch.
	Align Alignment

	// Per is the length of a window. It must be 0 for windows of the calendar, or positive.
	Per time.Duration

	// Zone is the time zone of calendar windows. Nil means UTC.
	Zone *time.Location
}

// Validate returns an error that states the invalid field if q is invalid.
func (q FixedWindowConfig) Validate() error {
	switch {
	case q.Count <= 0:
		return fmt.Errorf("throttle: fixed window %q: Count is %d: it must be positive", q.Name, q.Count)
	case q.Align > EachMonth:
		return fmt.Errorf("throttle: fixed window %q: Align is %d: take one of the constants", q.Name, q.Align)
	case q.Align.isCalendar() && q.Per != 0:
		return fmt.Errorf("throttle: fixed window %q: Per is %v: a window of %v has its own length: leave Per 0", q.Name, q.Per, q.Align)
	case !q.Align.isCalendar() && q.Per <= 0:
		return fmt.Errorf("throttle: fixed window %q: Per is %v: it must be positive", q.Name, q.Per)
	}
	return nil
}

// String returns q in words, such as "5 per 1m0s" or "200 each day".
func (q FixedWindowConfig) String() string {
	if q.Align.isCalendar() {
		return strconv.FormatInt(q.Count, 10) + " " + q.Align.String()
	}
	return strconv.FormatInt(q.Count, 10) + " per " + q.Per.String()
}

type fixedWindow struct {
	base
	config    FixedWindowConfig
	current   window
	enteredAt time.Duration // when current was entered, as returned by ticks.SinceStart
}

// A window is an interval of time and the units taken in it.
type window struct {
	span
	id   uint64 // sequence number among the windows in which units were taken
	used int64
}

// NewFixedWindow returns a limiter that counts units in consecutive windows, starting at zero
// in each. Use it if the server counts in this way, and its windows are known:
//
//	units used                       limit 5 a minute
//	 5 ┤            ▁▁▁▁│▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔│
//	   │            ▏   │                │
//	 0 ┼────────────┴───┼────────────────┼──▶ time
//	 11:00:00   11:00:59 11:01:00     11:02:00
//	            5 units, 5 more: ten within two seconds
//
// Invariant: within one window no more than Count units are granted and kept; within any
// span as long as a window, no more than twice that.
//
// Limitations: Report does nothing after the window in which the claim was granted has ended; a
// cost above the limit does not carry over to the next window. If the clock is set back, claims
// count in the current window until that has lasted for its length.
//
// SetLimit replaces Name, Count and, except for windows of the calendar, Per. Units taken in
// the current window count in the new window that replaces it.
//
// It panics if q is invalid.
func NewFixedWindow(q FixedWindowConfig) Adjustable {
	must(q.Validate(), "NewFixedWindow")
	tl := ticks.NewWallTimeline()
	if q.Align == AtFirst || q.Align == AtCreation {
		tl = ticks.NewTimeline() // these windows are private to the limiter: setting the wall clock need not move them
	}
	return &fixedWindow{base: newBase(tl, policyOf(q.Name, q)), config: q, current: window{span: emptySpan}}
}

func (f *fixedWindow) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, err := c.Units()
	if err != nil {
		return d, err
	}
	given := f.time.Read(c.Now)
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.effectiveReading(given)
	d.Policy, d.At = f.policy, f.time.Stamp(now, given, c.Now)
	w := f.windowAt(now)
	d.Limit, d.Per = f.config.Count, time.Duration(ticks.Sub(w.end, w.start))
	switch {
	case n > f.config.Count:
		d.Wait = Forever
	case n > f.config.Count-w.used:
		d.Wait = time.Duration(ticks.Sub(w.end, now))
	default:
		d.OK, d.Grant = true, w.id
		if !c.DryRun {
			if w.id != f.current.id {
				f.enteredAt = ticks.SinceStart()
			}
			w.used += n
			f.current, f.last = w, now
		}
	}
	d.Remaining = max(f.config.Count-w.used, 0)
	if w.used > 0 {
		d.ResetAfter = time.Duration(ticks.Sub(w.end, now))
	}
	d.setFresh(&c)
	return d, nil
}

// Report implements Limiter: it corrects the cost in the window in which it was granted.
func (f *fixedWindow) Report(_ context.Context, c Claim, d Decision, fb Feedback) {
	f.correct(c, d, fb, func(extra, _ int64) {
		if d.Grant == f.current.id {
			f.current.used = max(ticks.Add(f.current.used, extra), 0)
		}
	})
}

func (f *fixedWindow) SetLimit(l Limit) error {
	if err := l.checkNoBurst("fixed window"); err != nil {
		return err
	}
	given := f.time.Read(time.Time{})
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.config
	if q.Name, q.Count = l.Name, l.Count; !q.Align.isCalendar() || l.Per < 0 { // a calendar has periods of its own
		q.Per = l.Per
	}
	if err := q.Validate(); err != nil {
		return err
	}
	now := f.effectiveReading(given)
	if w := f.windowAt(now); w.id == f.current.id {
		w.span = q.span(&f.time, now, w.start)
		f.current, f.last = w, now // an older reading must not be before the start of the window
	}
	f.config, f.policy = q, policyOf(q.Name, q)
	return nil
}

// effectiveReading returns the reading at which a claim with the given reading is decided.
// A reading older than that of the latest grant counts as the latter until the current window
// has lasted for its length by the monotonic clock: a clock that is set back therefore blocks
// claims for at most the length of one window.
func (f *fixedWindow) effectiveReading(given int64) int64 {
	if given >= f.current.start || int64(ticks.SinceStart()-f.enteredAt) < ticks.Sub(f.current.end, f.current.start) {
		return max(given, f.last)
	}
	return given
}

func (f *fixedWindow) windowAt(now int64) window {
	if w := f.current; now >= w.start && (now < w.end || w.end == math.MaxInt64) {
		return w
	}
	return window{span: f.config.span(&f.time, now, now), id: f.current.id + 1}
}
