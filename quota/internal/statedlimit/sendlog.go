package statedlimit

import (
	"time"
	"unsafe"
)

// A SendLog holds when requests were sent of late. Its memory is fixed: when it is full, the two entries that are closest to
// each other are joined into one at the later time. So it never contains fewer requests than were sent, and none earlier
// than it was sent: units are expected late, never early.
type SendLog struct {
	base    time.Time // when the log was created
	entries [16]sendEntry
	n       int // entries in use, in ascending order of their times
}

// LogBytes is the size of a SendLog.
const LogBytes = int64(unsafe.Sizeof(SendLog{}))

// A sendEntry is a number of requests that were sent at one time.
type sendEntry struct {
	at       time.Duration // since SendLog.base
	requests int64         // at least 1
}

// NewSendLog returns a log of requests that are sent from now on.
func NewSendLog(now time.Time) *SendLog { return &SendLog{base: now} }

// Add adds a request that is sent now, or at the time of the latest entry if that is later, and drops those that were not
// sent within window.
func (l *SendLog) Add(window time.Duration, now time.Time) {
	at, old := now.Sub(l.base), 0
	for old < l.n && l.entries[old].at <= at-window {
		old++
	}
	l.drop(0, old)
	switch {
	case l.n > 0 && l.entries[l.n-1].at >= at:
		l.entries[l.n-1].requests++
		return
	case l.n == len(l.entries):
		l.join()
	}
	l.entries[l.n] = sendEntry{at, 1}
	l.n++
}

// join joins the two entries that are closest to each other.
func (l *SendLog) join() {
	best := 1
	for i := 2; i < l.n; i++ {
		if l.entries[i].at-l.entries[i-1].at < l.entries[best].at-l.entries[best-1].at {
			best = i
		}
	}
	l.entries[best].requests += l.entries[best-1].requests
	l.drop(best-1, best)
}

// drop removes the entries from i up to, but not including, j.
func (l *SendLog) drop(i, j int) { l.n = i + copy(l.entries[i:], l.entries[j:l.n]) }

// Within returns how many requests were sent within window, which is at most that of Add; or more, because times are
// joined.
func (l *SendLog) Within(window time.Duration, now time.Time) (n int64) {
	after, until := now.Add(-window).Sub(l.base), now.Sub(l.base)
	for _, e := range l.entries[:l.n] {
		if e.at > after && e.at <= until {
			n += e.requests
		}
	}
	return n
}

// Next returns the time from now until there is one fewer within window; 0: there is none.
func (l *SendLog) Next(window time.Duration, now time.Time) time.Duration {
	after := now.Add(-window).Sub(l.base)
	for _, e := range l.entries[:l.n] {
		if e.at > after {
			return l.base.Add(e.at + window).Sub(now)
		}
	}
	return 0
}
