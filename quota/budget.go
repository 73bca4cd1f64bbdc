package quota

import (
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

// A budget bounds the memory that one account at one host holds, whatever the server sends:
// quotas, the limits in them, meters, routes and patterns are charged before they are added. What
// exceeds it is not tracked. It is less than 16 KiB, since the site itself, its fresh quota and the
// names of its policies are not charged, and maps have empty places.
type budget struct{ used atomic.Int64 }

const (
	maxBytes = 14 << 10

	bucketBytes    = int64(unsafe.Sizeof(bucket{})) + 48 // its places in lists
	sharedBytes    = int64(unsafe.Sizeof(sharedState{}))
	toldBytes      = int64(unsafe.Sizeof(told{})) + 48 // for the size classes of slices
	estimatorBytes = int64(unsafe.Sizeof(estimator{})) + 8
	meterBytes     = int64(unsafe.Sizeof(meter{})) + 24
	routeBytes     = 24
)

// take charges n bytes. It reports false if that is too much.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > maxBytes {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *budget) give(n int64) { b.used.Add(-n) }

// bytes returns what b is charged with.
func (b *bucket) bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := bucketBytes + bytesOf(b.told)
	if b.est != nil {
		n += estimatorBytes
	}
	if b.shared != nil {
		n += sharedBytes
	}
	for _, m := range b.meters {
		m.mu.Lock()
		n += m.bytes() + bytesOf(m.told)
		m.mu.Unlock()
	}
	return n
}

func bytesOf(list []told) (n int64) {
	for i := range list {
		n += toldBytes + int64(len(list[i].name))
	}
	return n
}

func (m *meter) bytes() int64 { return meterBytes + int64(len(m.unit)+len(m.policy)) }

// addTold adds t to list, with a copy of its name: that is part of a header, which would be
// kept, too. It reports false if there is no room.
func (s *site) addTold(list []told, t told) ([]told, bool) {
	if len(list) == maxTold || !s.budget.take(toldBytes+int64(len(t.name))) {
		return list, false
	}
	t.name = strings.Clone(t.name)
	grown := make([]told, len(list)+1) // append would make room for more
	copy(grown, list)
	grown[len(list)] = t
	return grown, true
}

// newBucket returns a quota of s of which nothing is known. It is charged when it becomes a pool.
func (s *site) newBucket(good int) *bucket {
	b := &bucket{site: s, good: good}
	if s.tracker.sharing != nil {
		b.shared = new(sharedState)
	}
	s.tracker.declared.apply(b)
	return b
}

// room makes room for one more pool and reports whether there is any. If need be, the pool that
// was used longest ago goes, but none that holds requests back or has some in flight.
func (s *site) room(now time.Time) bool {
	need := bucketBytes + toldBytes
	for len(s.pools) == maxPools || s.budget.used.Load()+need > maxBytes {
		oldest := -1
		for i, b := range s.pools {
			if b != s.fresh.Load() && b.idle(now) && (oldest < 0 || b.lastUse().Before(s.pools[oldest].lastUse())) {
				oldest = i
			}
		}
		if oldest < 0 {
			return false
		}
		s.drop(oldest)
	}
	return true
}

// drop forgets a pool, its routes and its patterns.
func (s *site) drop(i int) {
	gone := s.pools[i]
	s.pools = append(s.pools[:i], s.pools[i+1:]...)
	s.pools[:len(s.pools)+1][len(s.pools)] = nil
	s.budget.give(gone.bytes())
	for route, b := range s.routes {
		if b == gone {
			delete(s.routes, route)
			s.budget.give(routeBytes)
		}
	}
	s.budget.give(int64(s.patterns.forget(gone)) * setBytes)
	gone.drop()
}

// drop makes b keep nothing from now on. A Demand may still have it.
func (b *bucket) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.meters {
		m.mu.Lock()
		m.told, m.dropped = nil, true
		m.mu.Unlock()
	}
	b.told, b.meters, b.est, b.dropped = nil, nil, nil, true
}

func (b *bucket) isDropped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dropped
}

// idle reports whether b lets all requests go as of now and none is in flight.
func (b *bucket) idle(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.flight.open > 0 || b.gate.until.After(now.Add(-longAgo)) && b.gate.ajar || b.gate.until.After(now) || b.est != nil && b.est.holds(now) {
		return false
	}
	for i := range b.told {
		if t := &b.told[i]; t.remaining <= 0 && now.Before(t.reset) {
			return false
		}
	}
	return true
}

// longAgo is after what time a hold that nothing has tested is as good as over.
const longAgo = 10 * time.Minute

// holds reports whether the estimator has an estimate that matters as of now.
func (e *estimator) holds(now time.Time) bool {
	return e.loop.on() || e.pending || e.stopNext || e.window.on() && now.Before(e.window.reset)
}

func (b *bucket) lastUse() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}
