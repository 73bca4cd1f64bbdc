package throttle

import (
	"cmp"
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// An Alignment determines where the windows of a fixed window limit begin.
type Alignment uint8

const (
	AtEpoch    Alignment = iota // at whole multiples of Per since the Unix epoch
	AtFirst                     // at the first claim that is granted while no window is open
	AtCreation                  // at whole multiples of Per since the limiter was created
	EachMinute                  // at each full minute of the local time in Zone
	EachHour                    // at each full hour of that time
	EachDay                     // at each midnight of that time, also if the day has 23 or 25 hours
	EachMonth                   // at the first midnight of each month
)

func (a Alignment) isCalendar() bool { return a >= EachMinute }

var alignments = [...]string{
	AtEpoch: "from the epoch", AtFirst: "from the first claim", AtCreation: "from the creation",
	EachMinute: "each minute", EachHour: "each hour", EachDay: "each day", EachMonth: "each month",
}

// String returns a in words, such as "from the epoch" or "each day".
func (a Alignment) String() string { return nameOf(alignments[:], uint8(a), "alignment") }

// A span is an interval of a timeline, including start and excluding end.
type span struct{ start, end int64 }

// emptySpan contains no reading.
var emptySpan = span{math.MaxInt64, math.MinInt64}

// span returns the window of q that contains now, which starts at opened with AtFirst.
func (q FixedWindowConfig) span(tl *ticks.Timeline, now, opened int64) span {
	if q.Align.isCalendar() {
		from, to := q.Window(tl.At(now))
		return span{min(tl.Read(from), now), tl.Read(to)}
	}
	start := opened
	if q.Align != AtFirst {
		start = ticks.Mul(ticks.FloorDiv(now, int64(q.Per)), int64(q.Per))
	}
	return span{start, ticks.Add(start, int64(q.Per))}
}

// Window returns the window of q that contains t, including from and excluding to. For AtFirst
// and AtCreation, whose windows depend on the limiter, it returns the window of AtEpoch.
func (q FixedWindowConfig) Window(t time.Time) (from, to time.Time) {
	if q.Align.isCalendar() {
		return q.Align.calendarWindow(t.In(cmp.Or(q.Zone, time.UTC)))
	}
	from = time.Unix(0, ticks.FloorDiv(t.UnixNano(), int64(q.Per))*int64(q.Per))
	return from, from.Add(q.Per)
}

// calendarWindow returns the calendar window that contains t, in the zone of t.
//
// Days and months are calculated from dates, so that a day with a change of the offset has
// its actual length. An hour that occurs twice is two windows.
func (a Alignment) calendarWindow(t time.Time) (from, to time.Time) {
	switch a {
	case EachMinute:
		return clockWindow(t, time.Minute)
	case EachHour:
		return clockWindow(t, time.Hour)
	}
	from, to = a.startOf(t, 0), a.startOf(t, 1)
	switch { // midnight occurs twice if the offset changes backward across it: only one of the two counts
	case t.Before(from):
		return a.startOf(t, -1), from
	case !t.Before(to):
		return to, a.startOf(t, 2)
	}
	return from, to
}

// startOf returns the start of the k-th day or month after that of t.
func (a Alignment) startOf(t time.Time, k int) time.Time {
	y, m, day := t.Date()
	if a == EachMonth {
		return midnight(y, m+time.Month(k), 1, t.Location())
	}
	return midnight(y, m, day+k, t.Location())
}

// clockWindow returns the window of length per that contains t and starts at a multiple of
// per in local time. It is shorter if the offset of the zone changes within it.
func clockWindow(t time.Time, per time.Duration) (from, to time.Time) {
	_, offset := t.Zone()
	shown := time.Duration(offset)*time.Second + time.Duration(t.Nanosecond()) + time.Duration(t.Unix()%3600)*time.Second
	from = t.Add(-((shown%per + per) % per))
	to = from.Add(per)
	begin, end := t.ZoneBounds() // zero: none
	if from.Before(begin) && !begin.After(t) {
		from = begin
	}
	if end.After(t) && end.Before(to) { // Go 1.26 returns a time one day early on the last day of a leap year
		to = end
	}
	return from, to
}

// midnight returns the start of a day. If a change of the offset skips midnight, that is
// the instant of the change.
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
