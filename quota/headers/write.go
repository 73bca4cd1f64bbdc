package headers

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A Dialect is a set of headers in which a Report can be written. Dialects can be combined:
// XRateLimit|Draft10 writes both.
type Dialect uint8

const (
	XRateLimit  Dialect = 1 << iota // X-RateLimit-Limit, -Remaining, and -Reset in seconds from now
	Draft03                         // RateLimit-Limit with its window, -Remaining, -Reset
	Draft10                         // RateLimit and RateLimit-Policy: structured fields, with one item per limit
	XRetryAfter                     // X-RateLimit-Retry-After beside Retry-After
	XResetAfter                     // X-RateLimit-Reset-After: as XRateLimit's Reset, but in seconds with three decimals, as Discord does
)

// Write sets the headers that state r in the dialects of d, and Retry-After if r has one.
// It omits what r does not state, so that Parse of the result returns r as far as the
// dialect allows. Times are rounded up to whole seconds, so that a client that waits for
// them is not early.
//
// XRateLimit and Draft03 can state one limit, without its name; they state the one with the
// smallest share left. Draft10 states all limits; it names a limit without a name
// "default", and states a reset only together with the remaining units.
func Write(h http.Header, d Dialect, r Report) {
	w := writerPool.Get().(*writer)
	w.buf, w.n = w.buf[:0], 0
	if i := tightest(r.Limits); i >= 0 {
		if d&XRateLimit != 0 {
			w.limitHeaders("X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset", &r.Limits[i], 0)
		}
		if l := &r.Limits[i]; d&XResetAfter != 0 && l.HasReset {
			w.millisHeader("X-Ratelimit-Reset-After", l.ResetAfter)
		}
		if d&Draft03 != 0 {
			w.limitHeaders("Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", &r.Limits[i], r.Limits[i].Window)
		}
	}
	if d&Draft10 != 0 {
		w.states(r.Limits)
		w.policies(r.Limits)
	}
	if r.HasRetryAfter {
		w.intHeader("Retry-After", wholeSeconds(r.RetryAfter))
		if d&XRetryAfter != 0 {
			w.intHeader("X-Ratelimit-Retry-After", wholeSeconds(r.RetryAfter))
		}
	}
	w.flush(h)
	writerPool.Put(w)
}

// A writer appends all values to one buffer and cuts them from one string at the end, so
// that a response costs two allocations regardless of the number of headers.
type writer struct {
	buf  []byte
	n    int
	keys [11]string // names of headers, which are constants
	ends [11]int    // index in buf of the end of each value
}

var writerPool = sync.Pool{New: func() any { return new(writer) }}

func (w *writer) end(key string) {
	w.keys[w.n], w.ends[w.n] = key, len(w.buf)
	w.n++
}

func (w *writer) intHeader(key string, n int64) {
	w.int(n)
	w.end(key)
}

// millisHeader writes d in seconds with three decimals, rounded up.
func (w *writer) millisHeader(key string, d time.Duration) {
	d = min(max(d, 0), maxDeltaSeconds*time.Second)
	ms := int64((d + time.Millisecond - 1) / time.Millisecond)
	w.int(ms / 1000)
	w.buf = append(w.buf, '.', byte('0'+ms/100%10), byte('0'+ms/10%10), byte('0'+ms%10))
	w.end(key)
}

func (w *writer) int(n int64) {
	w.buf = strconv.AppendInt(w.buf, min(max(n, 0), maxInteger), 10)
}

// limitHeaders writes one limit to three headers, with its window after the first value.
func (w *writer) limitHeaders(limit, remaining, reset string, l *Limit, window time.Duration) {
	if l.HasLimit {
		w.int(l.Limit)
		if window > 0 {
			w.text(", ")
			w.int(l.Limit)
			w.param(";w=", wholeSeconds(window))
		}
		w.end(limit)
	}
	if l.HasRemaining {
		w.intHeader(remaining, l.Remaining)
	}
	if l.HasReset {
		w.intHeader(reset, wholeSeconds(l.ResetAfter))
	}
}

// states writes the remaining units of each limit: RateLimit: "name";r=50;t=30.
func (w *writer) states(limits []Limit) {
	start := len(w.buf)
	for i := range limits {
		l := &limits[i]
		if !l.HasRemaining {
			continue
		}
		w.item(start, l.Name)
		w.param(";r=", l.Remaining)
		if l.HasReset {
			w.param(";t=", wholeSeconds(l.ResetAfter))
		}
		w.partition(l.PartitionKey)
	}
	w.endUnlessEmpty("Ratelimit", start)
}

// policies writes the configuration of each limit: RateLimit-Policy: "name";q=100;w=60.
func (w *writer) policies(limits []Limit) {
	start := len(w.buf)
	for i := range limits {
		l := &limits[i]
		if !l.HasLimit {
			continue
		}
		w.item(start, l.Name)
		w.param(";q=", l.Limit)
		if l.Unit != "" {
			w.text(`;qu="`)
			w.quoted(l.Unit, '_', '-')
			w.text(`"`)
		}
		if l.Window > 0 {
			w.param(";w=", wholeSeconds(l.Window))
		}
		w.partition(l.PartitionKey)
	}
	w.endUnlessEmpty("Ratelimit-Policy", start)
}

func (w *writer) endUnlessEmpty(key string, start int) {
	if len(w.buf) > start {
		w.end(key)
	}
}

func (w *writer) text(s string) { w.buf = append(w.buf, s...) }

func (w *writer) param(key string, n int64) {
	w.text(key)
	w.int(n)
}

// partition writes a partition key, if there is one.
func (w *writer) partition(key string) {
	if key != "" {
		w.text(";pk=:")
		w.buf = base64.StdEncoding.AppendEncode(w.buf, []byte(key))
		w.text(":")
	}
}

// item starts a list item in the value that starts at index start.
func (w *writer) item(start int, name string) {
	if len(w.buf) > start {
		w.text(", ")
	}
	if name == "" {
		name = "default"
	}
	w.text(`"`)
	w.quoted(name, 0, 0)
	w.text(`"`)
}

// quoted writes the content of a structured-field string, with each byte from replaced by
// to. Such strings contain only ASCII; other bytes are replaced by '?'.
func (w *writer) quoted(s string, from, to byte) {
	for i := range len(s) {
		c := s[i]
		switch {
		case c < ' ' || c > '~':
			c = '?'
		case c == '"' || c == '\\':
			w.buf = append(w.buf, '\\')
		case c == from:
			c = to
		}
		w.buf = append(w.buf, c)
	}
}

func (w *writer) flush(h http.Header) {
	all := string(w.buf)
	values := make([]string, w.n)
	start := 0
	for i, key := range w.keys[:w.n] {
		values[i] = all[start:w.ends[i]]
		h[key] = values[i : i+1 : i+1]
		start = w.ends[i]
	}
}

// tightest returns the index of the limit with the smallest share left, or -1 if there is
// none. Limits that do not state what is left come last.
func tightest(limits []Limit) int {
	best, least := -1, 0.0
	for i := range limits {
		l, share := &limits[i], 2.0
		if l.HasRemaining {
			share = min(float64(l.Remaining)/float64(max(l.Limit, l.Remaining, 1)), 1)
		}
		if best < 0 || share < least {
			best, least = i, share
		}
	}
	return best
}

// wholeSeconds returns d in seconds, rounded up. The result is less than a billion (31
// years), because clients interpret larger numbers as the time since 1970.
func wholeSeconds(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return min(int64((d-1)/time.Second)+1, maxDeltaSeconds)
}

const (
	maxDeltaSeconds = 1e9 - 1
	maxInteger      = 1e15 - 1 // the largest integer of a structured field
)
