package sketch

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A table keeps lines of words in two panes, one for the current window of time and
// one for the window before. The two lines of a place lie beside each other:
//
//	place 0                     place 1
//	│ even windows│ odd windows │ even windows│ odd windows │ …
//	│ 8 │ bits    │ 7 │ bits    │ 4 │ bits    │ 7 │ bits    │
//
// The first word of a line is the window that it belongs to, and that is all there is
// to rotation. In window 8 above, the line marked 4 is four windows old and counts as
// empty; whoever writes there next wipes it first. So nothing happens when a window
// ends: no goroutine clears anything, and nobody waits until a pane is clear.
//
// The odd case is a reading from before the window of a line: it counts as the
// beginning of that window, since the line has forgotten what was before. Only what
// was written marks lines.
type table struct {
	slots int
	width int // words of a line
	words []uint64
}

// newTable returns a shelf with so many places, which stripes must divide.
func newTable(slots, width int) table {
	return table{slots: slots, width: width, words: make([]uint64, 2*slots*width)}
}

// line returns the line of window at the place of h, whatever it holds.
func (s *table) line(h uint64, window uint64) []uint64 {
	i := (2*fastRange(h, s.slots) + int(window&1)) * s.width
	return s.words[i : i+s.width : i+s.width]
}

// lookup returns the line of window at the place of h, or nil if it holds another window.
func (s *table) lookup(h uint64, window uint64) []uint64 {
	if l := s.line(h, window); l[0] == window {
		return l
	}
	return nil
}

// lineForWrite returns the line of window at the place of h, wiped if it held another one.
func (s *table) lineForWrite(h uint64, window uint64) []uint64 {
	l := s.line(h, window)
	if l[0] != window {
		clear(l)
		l[0] = window
	}
	return l
}

// latestWindow returns the latest window that was written at the place of h.
func (s *table) latestWindow(h uint64) uint64 {
	return max(s.line(h, 0)[0], s.line(h, 1)[0])
}

func (s *table) bytes() int64 { return int64(len(s.words)) * 8 }

// windows divides time into windows of per nanoseconds each, counted from the Unix
// epoch. They are numbered so that 0 is older than all others.
type windows struct{ per int64 }

// An instant is an instant as windows see it.
type instant struct {
	window uint64
	offset int64 // nanoseconds since the window began
}

func (w windows) at(ns int64) instant {
	index := ticks.FloorDiv(ns, w.per)
	return instant{window: uint64(index) ^ 1<<63, offset: ns - index*w.per}
}

// nanoseconds is the inverse of at.
func (w windows) nanoseconds(m instant) int64 { return int64(m.window^1<<63)*w.per + m.offset }

// notBefore returns m, or the beginning of window if m is before that.
func (m instant) notBefore(window uint64) instant {
	if m.window < window {
		return instant{window: window}
	}
	return m
}

// weightedCount returns how much of a count of the window before m still counts: as much of it
// as of the time from m back by a window lies there. It rounds up.
func (w windows) weightedCount(count, offset int64) int64 {
	return ticks.MulDivUp(count, w.per-offset, w.per)
}

func validateWindow(what string, per time.Duration) error {
	if per <= 0 {
		return fmt.Errorf("sketch: %s: Per is %v: it must be positive", what, per)
	}
	return nil
}

// decayTime returns how long into a window no more than room is left of a count of the
// window before.
func (w windows) decayTime(count, available int64) int64 {
	if count <= available {
		return 0
	}
	return w.per - ticks.MulDivDown(available, w.per, count)
}

var epoch = time.Unix(0, 0)

// sinceEpoch saturates for instants that are more than 292 years away.
func sinceEpoch(t time.Time) int64 { return int64(t.Sub(epoch)) }

// stripes are locks for the places of one or more shelves. All places of a hash, on
// shelves whose places are multiples of the number of stripes, have the same lock.
type stripes []stripe

// A stripe has a line of the cache to itself.
type stripe struct {
	sync.Mutex
	_ [cacheLineBytes - 8]byte
}

const maxStripes = 256

// stripesFor returns locks for shelves of which the smallest has so many places.
func stripesFor(slots int) stripes {
	return make(stripes, min(max(slots/16, 1), maxStripes))
}

// roundToStripes returns places rounded to a multiple of the stripes: up, or down if the memory
// for them was fixed.
func (s stripes) roundToStripes(slots int, fixed bool) int {
	if !fixed {
		slots += len(s) - 1
	}
	return max(slots-slots%len(s), len(s))
}

func (s stripes) lockFor(h uint64) *sync.Mutex { return &s[fastRange(h, len(s))].Mutex }

// slotsIn returns how many places of two lines fit into bytes.
func slotsIn(bytes int64, width int) int {
	return int(max(min(bytes/int64(2*8*width), math.MaxInt32), 1))
}
