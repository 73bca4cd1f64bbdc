package worlds

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// A LimitKind is how a server counts requests.
type LimitKind string

// The kinds of limits.
const (
	FixedWindow    LimitKind = "fixed window"
	SlidingLog     LimitKind = "sliding log"
	SlidingCounter LimitKind = "sliding counter"
	Bucket         LimitKind = "bucket"
	InFlight       LimitKind = "in flight"
)

// A Scope is what shares a limit.
type Scope string

// The scopes of limits.
const (
	PerHost   Scope = "host"
	PerTenant Scope = "tenant"
	PerRoute  Scope = "route"
)

// A Limit is a limit that the server enforces.
type Limit struct {
	Kind    LimitKind
	Count   int           // requests per Window, or in flight
	Window  time.Duration // zero if Kind is InFlight
	Burst   int           // if Kind is Bucket
	Aligned bool          // fixed windows begin at multiples of their length, otherwise with a request
	Used    int           // requests that were counted before the start of the world
	Scope   Scope

	Longer      time.Duration // the length of a second window with a limit; zero means that there is none
	LongerCount int           // requests per Longer

	Backends      int     // each has a part of the limit of its own; 1 means that there is one counter
	Others        float64 // the share of the limit that other clients use
	CountRejected bool    // rejected requests count, too
	Load          float64 // the calls per second by what the limit allows

	Ban     Ban
	Dialect Dialect
	Status  int     // of a rejection
	Body    int     // of a rejection, see bodies
	Retry   bool    // rejections have a Retry-After header in addition to the headers of Dialect
	Quick   float64 // the latency of a rejection by that of another response
}

// A Ban rejects all requests for a time after many rejections.
type Ban struct {
	After  int           // rejections within Within that begin a ban; zero means that there are no bans
	Within time.Duration // see After
	Length time.Duration // of a ban
	Extend bool          // each request during a ban begins it again
	Stated bool          // rejections during a ban state its end in a Retry-After header
}

// String describes l.
func (l *Limit) String() string {
	s := fmt.Sprintf("limit %s %d", l.Kind, l.Count)
	if l.Window > 0 {
		s += " per " + l.Window.String()
	}
	if l.Kind == Bucket {
		s += fmt.Sprintf(" (burst %d)", l.Burst)
	}
	if l.Kind == FixedWindow && !l.Aligned {
		s += " from the first request"
	}
	if l.Longer > 0 {
		s += fmt.Sprintf(" and %d per %s", l.LongerCount, l.Longer)
	}
	s += fmt.Sprintf(" by %s, demand %.2g x", l.Scope, l.Load)
	if l.Used > 0 {
		s += fmt.Sprintf(", %d used", l.Used)
	}
	if l.Backends > 1 {
		s += fmt.Sprintf(", %d backends", l.Backends)
	}
	if l.Others > 0 {
		s += fmt.Sprintf(", others use %s", percent(l.Others))
	}
	if l.CountRejected {
		s += ", counts rejected"
	}
	if b := l.Ban; b.After > 0 {
		s += fmt.Sprintf(", ban %s after %d in %s", short(b.Length), b.After, short(b.Within))
		if b.Extend {
			s += " extended"
		}
		if b.Stated {
			s += " stated"
		}
	}
	s += fmt.Sprintf(", %s, %d", l.Dialect, l.Status)
	if l.Retry {
		s += " with Retry-After"
	}
	return s
}

// A limiter is the state of a Limit for one of what it is shared by, on one backend.
type limiter struct {
	limit  *Limit
	meter  meter
	ban    ban
	others *others // nil means that there are no other clients

	waiting queue // of the oracle
}

// newLimiter returns limiter n of a world. now is the time of its first request.
func (w *World) newLimiter(n int, now time.Duration) *limiter {
	l := w.Limit
	backends := max(l.Backends, 1)
	count := max(l.Count/backends, 1)
	m := &limiter{limit: l, ban: ban{Ban: l.Ban}}
	switch l.Kind {
	case FixedWindow:
		m.meter = &fixedWindow{limit: count, length: l.Window, aligned: l.Aligned}
	case SlidingLog:
		m.meter = &slidingLog{limit: count, length: l.Window}
	case SlidingCounter:
		m.meter = &slidingCounter{limit: count, length: l.Window}
	case Bucket:
		m.meter = &bucket{interval: l.Window / time.Duration(count), burst: max(l.Burst/backends, 1)}
	case InFlight:
		m.meter = &concurrency{limit: count}
	}
	if l.Longer > 0 {
		m.meter = &both{m.meter, &fixedWindow{limit: max(l.LongerCount/backends, 1), length: l.Longer, aligned: l.Aligned}}
	}
	for range l.Used / backends {
		m.meter.count(now)
	}
	if l.Others > 0 && l.Kind != InFlight {
		rate := l.Others * float64(count) / l.Window.Seconds()
		m.others = &others{random: w.random(forOthers, n), mean: float64(time.Second) / rate, next: now}
	}
	return m
}

// advance counts the requests of other clients until now.
func (l *limiter) advance(now time.Duration) {
	if o := l.others; o != nil {
		o.advance(now, l.meter)
	}
}

// admit reports whether a request is accepted, and counts it.
func (l *limiter) admit(now time.Duration) bool {
	l.advance(now)
	if l.ban.banned(now) {
		return false
	}
	if l.meter.free(now) {
		l.meter.count(now)
		return true
	}
	if l.limit.CountRejected {
		l.meter.count(now)
	}
	l.ban.rejected(now)
	return false
}

// next returns the earliest time at which a request may be accepted.
func (l *limiter) next(now time.Duration) time.Duration {
	l.advance(now)
	return max(l.meter.next(now), l.ban.until)
}

// leave ends a request of a limit on requests in flight.
func (l *limiter) leave() {
	if c, ok := l.meter.(*concurrency); ok {
		c.inFlight--
	}
}

// A ban is the state of a Ban.
type ban struct {
	Ban
	until      time.Duration
	rejections []time.Duration // the latest
}

// banned reports whether a ban lasts, and extends it.
func (b *ban) banned(now time.Duration) bool {
	if now >= b.until {
		return false
	}
	if b.Extend {
		b.until = now + b.Length
	}
	return true
}

func (b *ban) rejected(now time.Duration) {
	if b.After == 0 {
		return
	}
	if b.rejections = append(b.rejections, now); len(b.rejections) < b.After {
		return
	}
	if first := b.rejections[len(b.rejections)-b.After]; now-first <= b.Within {
		b.until, b.rejections = now+b.Length, b.rejections[:0]
	} else {
		b.rejections = b.rejections[1:]
	}
}

// others are other clients that share a limit. Their requests are a Poisson process, and
// all are counted, because these clients repeat those that are rejected.
type others struct {
	random *rand.Rand
	mean   float64 // nanoseconds between two requests
	next   time.Duration
}

// maxOthers is the number of requests of other clients that are counted in one step.
const maxOthers = 5000

func (o *others) advance(now time.Duration, m meter) {
	if behind := now - o.next - time.Duration(maxOthers*o.mean); behind > 0 {
		o.next += behind
	}
	for o.next <= now {
		m.count(o.next)
		o.next += time.Duration(o.random.ExpFloat64()*o.mean) + 1
	}
}
