package sketch

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A table stores lines of words for two windows of time, the current and the previous one. The two
// lines of a slot are adjacent:
//
//	slot 0                      slot 1
//	│ even windows│ odd windows │ even windows│ odd windows │ …
//	│ 8 │ bits    │ 7 │ bits    │ 4 │ bits    │ 7 │ bits    │
//
// The first word of a line is the number of its window. In window 8 above, the line marked 4
// belongs to a window that has ended long before and counts as empty; the next write clears it
// first. Nothing happens when a window ends: no goroutine clears lines, and no call waits until
// they are cleared.
//
// Limitations: a time before the window of a line is treated as the beginning of that window,
// because the line no longer contains earlier counts. Reads do not change the window of a line.
type table struct {
	slots int
	width int // words per line
	words []uint64
}

// newTable returns a table with the given number of slots, which must be a multiple of the number
// of stripes.
func newTable(slots, width int) table {
	return table{slots: slots, width: width, words: make([]uint64, 2*slots*width)}
}

// line returns the line for window in the slot of h, whatever window it belongs to.
func (s *table) line(h uint64, window uint64) []uint64 {
	i := (2*fastRange(h, s.slots) + int(window&1)) * s.width
	return s.words[i : i+s.width : i+s.width]
}

// lookup returns the line for window in the slot of h, or nil if it belongs to another window.
func (s *table) lookup(h uint64, window uint64) []uint64 {
	if l := s.line(h, window); l[0] == window {
		return l
	}
	return nil
}

// lineForWrite returns the line for window in the slot of h. It clears the line first if it
// belongs to another window.
func (s *table) lineForWrite(h uint64, window uint64) []uint64 {
	l := s.line(h, window)
	if l[0] != window {
		clear(l)
		l[0] = window
	}
	return l
}

// latestWindow returns the latest window that was written in the slot of h.
func (s *table) latestWindow(h uint64) uint64 {
	return max(s.line(h, 0)[0], s.line(h, 1)[0])
}

func (s *table) bytes() int64 { return int64(len(s.words)) * 8 }

// windows divides time into windows of per nanoseconds each, counted from the Unix epoch. They are
// numbered so that 0 is before all other windows.
type windows struct{ per int64 }

// An instant is a time as a window and an offset.
type instant struct {
	window uint64
	offset int64 // nanoseconds since the beginning of the window
}

func (w windows) at(ns int64) instant {
	index := ticks.FloorDiv(ns, w.per)
	return instant{window: uint64(index) ^ 1<<63, offset: ns - index*w.per}
}

// nanoseconds is the inverse of at.
func (w windows) nanoseconds(m instant) int64 { return int64(m.window^1<<63)*w.per + m.offset }

// notBefore returns m, or the beginning of window if m is before it.
func (m instant) notBefore(window uint64) instant {
	if m.window < window {
		return instant{window: window}
	}
	return m
}

// weightedCount returns the part of a count of the previous window that still counts at offset in
// the current window: the share of the previous window within the last window length. It rounds
// up.
func (w windows) weightedCount(count, offset int64) int64 {
	return ticks.MulDivUp(count, w.per-offset, w.per)
}

func validateWindow(what string, per time.Duration) error {
	if per <= 0 {
		return fmt.Errorf("sketch: %s: Per is %v: it must be positive", what, per)
	}
	return nil
}

// decayTime returns the offset in a window at which at most available is left of a count of the
// previous window.
func (w windows) decayTime(count, available int64) int64 {
	if count <= available {
		return 0
	}
	return w.per - ticks.MulDivDown(available, w.per, count)
}

var epoch = time.Unix(0, 0)

// sinceEpoch returns the nanoseconds from the Unix epoch to t. It saturates for times that are
// more than 292 years away.
func sinceEpoch(t time.Time) int64 { return int64(t.Sub(epoch)) }

// stripes are locks for the slots of one or more tables. All slots of a hash have the same lock,
// in all tables whose number of slots is a multiple of the number of stripes.
type stripes []stripe

// A stripe occupies a cache line of its own.
type stripe struct {
	sync.Mutex
	_ [cacheLineBytes - 8]byte
}

const maxStripes = 256

// stripesFor returns locks for tables of which the smallest has the given number of slots.
func stripesFor(slots int) stripes {
	return make(stripes, min(max(slots/16, 1), maxStripes))
}

// roundToStripes returns slots rounded to a multiple of the number of stripes: down if the memory
// is fixed, otherwise up.
func (s stripes) roundToStripes(slots int, fixed bool) int {
	if !fixed {
		slots += len(s) - 1
	}
	return max(slots-slots%len(s), len(s))
}

func (s stripes) lockFor(h uint64) *sync.Mutex { return &s[fastRange(h, len(s))].Mutex }

// slotsIn returns the number of slots of two lines that fit into bytes.
func slotsIn(bytes int64, width int) int {
	return int(max(min(bytes/int64(2*8*width), math.MaxInt32), 1))
}
