package statedlimit

import (
	"time"
	"unsafe"
)

// A sendLog holds when accepted requests were counted, for a server that restores each unit a fixed
// time after it was used. Its memory is fixed: when it is full, the two entries that are closest to
// each other are joined into one at the later time. So it never contains fewer requests than were
// counted, and none earlier than it was counted: units are expected late, never early.
type sendLog struct {
	base    time.Time // when the log was created
	entries [16]sendEntry
	n       int // entries in use, in ascending order of their times
}

// LogBytes is the size of the log of an estimate.
const LogBytes = int64(unsafe.Sizeof(sendLog{}))

// A sendEntry is a number of requests that were counted at one time.
type sendEntry struct {
	at       time.Duration // since sendLog.base
	requests int64         // at least 1
}

// newSendLog returns a log of n requests that were counted at an unknown time before now: they are
// logged at now. It is empty if n is not positive.
func newSendLog(now time.Time, n int64) *sendLog {
	l := &sendLog{base: now}
	l.add(now, n)
	return l
}

// add counts n requests at now, or at the time of the latest entry if that is later. It does nothing
// if n is not positive.
func (l *sendLog) add(now time.Time, n int64) {
	at := now.Sub(l.base)
	switch {
	case n <= 0:
		return
	case l.n > 0 && l.entries[l.n-1].at >= at:
		l.entries[l.n-1].requests += n
		return
	case l.n == len(l.entries):
		l.join()
	}
	l.entries[l.n] = sendEntry{at, n}
	l.n++
}

// join joins the two entries that are closest to each other.
func (l *sendLog) join() {
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
func (l *sendLog) drop(i, j int) { l.n = i + copy(l.entries[i:], l.entries[j:l.n]) }

// count returns how many requests were counted after from and not after to.
func (l *sendLog) count(from, to time.Time) (n int64) {
	after, until := from.Sub(l.base), to.Sub(l.base)
	for _, e := range l.entries[:l.n] {
		if e.at > after && e.at <= until {
			n += e.requests
		}
	}
	return n
}

// next returns when the first requests after from were counted. It is zero if there are none.
func (l *sendLog) next(from time.Time) time.Time {
	after := from.Sub(l.base)
	for _, e := range l.entries[:l.n] {
		if e.at > after {
			return l.base.Add(e.at)
		}
	}
	return time.Time{}
}

// trim drops the oldest requests until at most used are left, the number of used units that the server
// states.
func (l *sendLog) trim(used int64) {
	for i := l.n - 1; i >= 0; i-- {
		if used -= l.entries[i].requests; used >= 0 {
			continue
		}
		if l.entries[i].requests += used; l.entries[i].requests <= 0 {
			i++
		}
		l.drop(0, i)
		return
	}
}

// A SendLog holds when requests were sent of late. Its memory is fixed, LogBytes.
type SendLog struct{ log sendLog }

// NewSendLog returns a log of requests that are sent from now on.
func NewSendLog(now time.Time) *SendLog { return &SendLog{sendLog{base: now}} }

// Add adds a request that is sent now, and drops those that were not sent within window.
func (l *SendLog) Add(window time.Duration, now time.Time) {
	old, since := 0, now.Add(-window).Sub(l.log.base)
	for old < l.log.n && l.log.entries[old].at <= since {
		old++
	}
	l.log.drop(0, old)
	l.log.add(now, 1)
}

// Next returns the time from now until there is one fewer within window; 0: there is none.
func (l *SendLog) Next(window time.Duration, now time.Time) time.Duration {
	if oldest := l.log.next(now.Add(-window)); !oldest.IsZero() {
		return oldest.Add(window).Sub(now)
	}
	return 0
}

// Within returns how many requests were sent within window, which is at most that of Add; or more, because times are
// joined, see sendLog.
func (l *SendLog) Within(window time.Duration, now time.Time) int64 {
	return l.log.count(now.Add(-window), now)
}
