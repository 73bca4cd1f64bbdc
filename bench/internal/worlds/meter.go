package worlds

import "time"

// A meter counts requests and decides which of them a server accepts. Times are since the
// beginning of 1970 and do not decrease.
type meter interface {
	// free reports whether a request would be accepted.
	free(now time.Duration) bool

	// count counts a request, whether it was accepted or not.
	count(now time.Duration)

	// next returns the earliest time from which on free is true, if no request is counted
	// until then.
	next(now time.Duration) time.Duration

	// state returns how many requests would be accepted now, and when all of the limit is
	// available again.
	state(now time.Duration) (remaining int, reset time.Duration)
}

// A fixedWindow accepts limit requests in each window.
type fixedWindow struct {
	limit   int
	length  time.Duration
	aligned bool // windows begin at multiples of length; otherwise with their first request

	begin time.Duration
	used  int
}

func (f *fixedWindow) renew(now time.Duration) {
	if now < f.begin+f.length && f.begin != 0 {
		return
	}
	f.used, f.begin = 0, now
	if f.aligned {
		f.begin = now - now%f.length
	}
}

func (f *fixedWindow) free(now time.Duration) bool {
	f.renew(now)
	return f.used < f.limit
}

func (f *fixedWindow) count(now time.Duration) {
	f.renew(now)
	f.used++
}

func (f *fixedWindow) next(now time.Duration) time.Duration {
	if f.free(now) {
		return now
	}
	return f.begin + f.length
}

func (f *fixedWindow) state(now time.Duration) (int, time.Duration) {
	f.renew(now)
	return max(f.limit-f.used, 0), f.begin + f.length
}

// A slidingLog accepts limit requests in any interval of its length.
type slidingLog struct {
	limit  int
	length time.Duration
	times  []time.Duration // of counted requests, of which those before first have expired
	first  int
}

func (l *slidingLog) expire(now time.Duration) {
	for l.first < len(l.times) && l.times[l.first]+l.length <= now {
		l.first++
	}
	if l.first > 1000 && 2*l.first > len(l.times) {
		l.times, l.first = append(l.times[:0], l.times[l.first:]...), 0
	}
}

func (l *slidingLog) free(now time.Duration) bool {
	l.expire(now)
	return len(l.times)-l.first < l.limit
}

func (l *slidingLog) count(now time.Duration) { l.times = append(l.times, now) }

func (l *slidingLog) next(now time.Duration) time.Duration {
	if l.free(now) {
		return now
	}
	return l.times[len(l.times)-l.limit] + l.length
}

func (l *slidingLog) state(now time.Duration) (int, time.Duration) {
	l.expire(now)
	n := len(l.times) - l.first
	if n == 0 {
		return l.limit, now
	}
	if n < l.limit {
		return l.limit - n, l.times[l.first] + l.length
	}
	return 0, l.next(now)
}

// A slidingCounter weights the requests of the previous window by the part of it that a
// window of the same length that ends now contains.
type slidingCounter struct {
	limit   int
	length  time.Duration
	index   time.Duration // number of the current window
	prev    int
	current int
}

func (c *slidingCounter) renew(now time.Duration) {
	switch index := now / c.length; index - c.index {
	case 0:
		return
	case 1:
		c.prev, c.current, c.index = c.current, 0, index
	default:
		c.prev, c.current, c.index = 0, 0, index
	}
}

// estimate returns the weighted number of requests, with prev and current as they will be
// at a time in the window index.
func (c *slidingCounter) estimate(at, index time.Duration, prev, current int) float64 {
	part := float64((index+1)*c.length-at) / float64(c.length)
	return float64(prev)*part + float64(current)
}

func (c *slidingCounter) free(now time.Duration) bool {
	c.renew(now)
	return c.estimate(now, c.index, c.prev, c.current)+1 <= float64(c.limit)+1e-9
}

func (c *slidingCounter) count(now time.Duration) {
	c.renew(now)
	c.current++
}

func (c *slidingCounter) next(now time.Duration) time.Duration {
	if c.free(now) {
		return now
	}
	index, prev, current := c.index, c.prev, c.current
	for current+1 > c.limit || prev > 0 && current+1 == c.limit {
		index, prev, current = index+1, current, 0
		if c.limit == 1 && prev > 0 {
			return (index + 1) * c.length
		}
	}
	if prev == 0 {
		return max(now, index*c.length)
	}
	// prev*part+current+1 <= limit, where part falls from 1 to 0 in the window
	part := min(float64(c.limit-current-1)/float64(prev), 1)
	at := (index+1)*c.length - time.Duration(part*float64(c.length))
	return max(at, now) + time.Microsecond
}

func (c *slidingCounter) state(now time.Duration) (int, time.Duration) {
	c.renew(now)
	left := int(float64(c.limit) - c.estimate(now, c.index, c.prev, c.current))
	return max(left, 0), (c.index + 1) * c.length
}

// A bucket admits a request per interval on average, and up to burst at the same moment.
type bucket struct {
	interval time.Duration
	burst    int
	tat      time.Duration // theoretical arrival time of the next request
}

func (b *bucket) free(now time.Duration) bool { return b.next(now) <= now }

func (b *bucket) count(now time.Duration) { b.tat = max(b.tat, now) + b.interval }

func (b *bucket) next(now time.Duration) time.Duration {
	return max(now, b.tat-time.Duration(b.burst-1)*b.interval)
}

func (b *bucket) state(now time.Duration) (int, time.Duration) {
	tat := max(b.tat, now)
	left := (time.Duration(b.burst)*b.interval - (tat - now)) / b.interval
	return int(max(left, 0)), tat
}

// A concurrency accepts at most limit requests in flight. Requests leave it with leave.
type concurrency struct {
	limit    int
	inFlight int
}

func (c *concurrency) free(time.Duration) bool { return c.inFlight < c.limit }
func (c *concurrency) count(time.Duration)     { c.inFlight++ }

// next returns a short time, because requests may leave at any time.
func (c *concurrency) next(now time.Duration) time.Duration {
	if c.free(now) {
		return now
	}
	return now + time.Second
}

func (c *concurrency) state(now time.Duration) (int, time.Duration) {
	return max(c.limit-c.inFlight, 0), now
}

// both accepts what two meters accept.
type both struct{ a, b meter }

func (m *both) free(now time.Duration) bool { return m.a.free(now) && m.b.free(now) }

func (m *both) count(now time.Duration) {
	m.a.count(now)
	m.b.count(now)
}

// next returns a lower bound: at that time the meter that was free earlier may have no
// request left.
func (m *both) next(now time.Duration) time.Duration { return max(m.a.next(now), m.b.next(now)) }

func (m *both) state(now time.Duration) (int, time.Duration) {
	a, resetA := m.a.state(now)
	b, resetB := m.b.state(now)
	if b < a {
		return b, resetB
	}
	return a, resetA
}
