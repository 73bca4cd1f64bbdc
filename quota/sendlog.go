package quota

import (
	"slices"
	"time"
)

// A sendLog holds when accepted requests were counted, for a server that restores each unit some
// time after it was taken. Its memory is bounded: when it is full, neighbouring entries are joined
// and count from the later one on, so units are never expected too early.
type sendLog struct {
	entries []sendEntry // by time
}

type sendEntry struct {
	at time.Time
	n  int64
}

const maxSendEntries = 32

// add counts n units at now.
func (l *sendLog) add(now time.Time, n int64) {
	if n <= 0 {
		return
	}
	if last := len(l.entries) - 1; last >= 0 && !l.entries[last].at.Before(now) {
		l.entries[last].n += n
		return
	}
	if len(l.entries) == maxSendEntries {
		l.join()
	}
	l.entries = append(l.entries, sendEntry{now, n})
}

// join joins the two neighbours that are closest to each other.
func (l *sendLog) join() {
	best := 1
	for i := 2; i < len(l.entries); i++ {
		if l.entries[i].at.Sub(l.entries[i-1].at) < l.entries[best].at.Sub(l.entries[best-1].at) {
			best = i
		}
	}
	l.entries[best].n += l.entries[best-1].n
	l.entries = slices.Delete(l.entries, best-1, best)
}

// count returns how many units were counted after from and not after to.
func (l *sendLog) count(from, to time.Time) (n int64) {
	for _, e := range l.entries {
		if e.at.After(from) && !e.at.After(to) {
			n += e.n
		}
	}
	return n
}

// next returns when the first units were counted after from; zero: none were.
func (l *sendLog) next(from time.Time) time.Time {
	for _, e := range l.entries {
		if e.at.After(from) {
			return e.at
		}
	}
	return time.Time{}
}

// trim drops the oldest units so that used are left, because the server states so many.
func (l *sendLog) trim(used int64) {
	for i := len(l.entries) - 1; i >= 0; i-- {
		if used -= l.entries[i].n; used < 0 {
			l.entries[i].n += used
			drop := i
			if l.entries[i].n > 0 {
				drop = i - 1
			}
			l.entries = slices.Delete(l.entries, 0, drop+1)
			return
		}
	}
}
