package throttle

import (
	"math"
	"strconv"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// An Alignment says where the windows of a FixedWindow begin.
type Alignment uint8

const (
	AtEpoch    Alignment = iota // at whole multiples of Per since the Unix epoch
	AtFirst                     // at the first claim that is granted when no window is open
	AtCreation                  // at whole multiples of Per since the limiter was made
	EachMinute                  // when the clocks of Zone show a full minute
	EachHour                    // when they show a full hour
	EachDay                     // at their midnight, also where a day has 23 or 25 hours
	EachMonth                   // at the midnight that begins a month
)

func (a Alignment) isCalendar() bool { return a >= EachMinute }

// String returns what windows so anchored are.
func (a Alignment) String() string {
	switch a {
	case AtEpoch:
		return "from the epoch"
	case AtFirst:
		return "from the first claim"
	case AtCreation:
		return "from the creation"
	case EachMinute:
		return "each minute"
	case EachHour:
		return "each hour"
	case EachDay:
		return "each day"
	case EachMonth:
		return "each month"
	}
	return "alignment " + strconv.Itoa(int(a))
}

// A span is a stretch of a timeline; start belongs to it, end does not.
type span struct{ start, end int64 }

// emptySpan contains no reading.
var emptySpan = span{math.MaxInt64, math.MinInt64}

// span returns the window of q that contains now. A window that opens with a claim
// opened at opened.
func (q FixedWindowConfig) span(tl *ticks.Timeline, now, opened int64) span {
	if q.Align.isCalendar() {
		from, to := q.Align.calendarWindow(tl.At(now).In(zoneOrUTC(q.Zone)))
		return span{min(tl.Read(from), now), tl.Read(to)}
	}
	start := opened
	if q.Align != AtFirst {
		start = ticks.Mul(ticks.FloorDiv(now, int64(q.Per)), int64(q.Per))
	}
	return span{start, ticks.Add(start, int64(q.Per))}
}

// Window returns the window of q that contains t: from is in it, to is not. It is for
// calendars and for AtEpoch; windows with another Anchor are not the same for all, and
// those returned are as if they were AtEpoch.
func (q FixedWindowConfig) Window(t time.Time) (from, to time.Time) {
	if q.Align.isCalendar() {
		return q.Align.calendarWindow(t.In(zoneOrUTC(q.Zone)))
	}
	from = time.Unix(0, ticks.FloorDiv(t.UnixNano(), int64(q.Per))*int64(q.Per))
	return from, from.Add(q.Per)
}

func zoneOrUTC(z *time.Location) *time.Location {
	if z == nil {
		return time.UTC
	}
	return z
}

// calendarWindow returns the calendar's window that contains t, in the zone of t.
//
// Days and months are found by name, so that one with a change of the clocks in it
// is as long as it is. Minutes and hours are found by length: an hour that the
// clocks show twice is two windows.
func (a Alignment) calendarWindow(t time.Time) (from, to time.Time) {
	switch a {
	case EachMinute:
		return clockWindow(t, time.Minute)
	case EachHour:
		return clockWindow(t, time.Hour)
	}
	from, to = a.startOf(t, 0), a.startOf(t, 1)
	switch { // where the clocks go back over midnight, it comes twice: one of them counts
	case t.Before(from):
		return a.startOf(t, -1), from
	case !t.Before(to):
		return to, a.startOf(t, 2)
	}
	return from, to
}

// startOf returns when the k-th day or month after that of t begins.
func (a Alignment) startOf(t time.Time, k int) time.Time {
	y, m, day := t.Date()
	if a == EachMonth {
		return midnight(y, m+time.Month(k), 1, t.Location())
	}
	return midnight(y, m, day+k, t.Location())
}

// clockWindow returns the stretch of length per that contains t and begins when the
// clocks show a multiple of it. It ends early where the clocks are changed.
func clockWindow(t time.Time, per time.Duration) (from, to time.Time) {
	_, offset := t.Zone()
	shown := time.Duration(offset)*time.Second + time.Duration(t.Nanosecond()) + time.Duration(t.Unix()%3600)*time.Second
	from = t.Add(-((shown%per + per) % per))
	to = from.Add(per)
	begin, end := t.ZoneBounds() // zero: none
	if from.Before(begin) && !begin.After(t) {
		from = begin
	}
	if end.After(t) && end.Before(to) { // Go 1.26 is a day early on the last of a leap year
		to = end
	}
	return from, to
}

// midnight returns the instant at which a day begins. Where the clocks skip
// midnight, that is when they are put forward.
func midnight(y int, m time.Month, day int, zone *time.Location) time.Time {
	t := time.Date(y, m, day, 0, 0, 0, 0, zone)
	want := time.Date(y, m, day, 12, 0, 0, 0, zone).Day()
	if t.Day() != want {
		if _, end := t.ZoneBounds(); !end.IsZero() {
			return end
		}
	}
	return t
}
