package headers

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// A Dialect is a way to tell a Report in headers. Dialects add up:
// XRateLimit|Draft10 writes both.
type Dialect uint8

const (
	XRateLimit  Dialect = 1 << iota // X-RateLimit-Limit, -Remaining, and -Reset in seconds from now
	Draft03                         // RateLimit-Limit with its window, -Remaining, -Reset
	Draft10                         // RateLimit and RateLimit-Policy: structured fields, an item per limit
	XRetryAfter                     // X-RateLimit-Retry-After beside Retry-After
	XResetAfter                     // X-RateLimit-Reset-After: as XRateLimit's Reset, but in seconds with three decimals, as Discord does
)

// Write sets the headers that tell r in the dialects of d, and Retry-After if r
// has one. What r does not say is not written, so that Parse of the result says
// r again as far as the dialect can. Times are rounded up to whole seconds: who
// obeys them is never early.
//
// XRateLimit and Draft03 have room for one limit and none for its name; they
// tell the tightest one. Draft10 tells all; it calls a limit without a name
// "default", and says when one resets only together with what remains.
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

// A writer collects values back to back and cuts them out of one string at the
// end, so that an answer pays for two allocations however many headers it has.
type writer struct {
	buf  []byte
	n    int
	keys [11]string // names of headers, all of them constants
	ends [11]int    // where each value ends in buf
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

// limitHeaders writes one limit in three headers, and its window behind the first.
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

// states writes what is left: RateLimit: "name";r=50;t=30.
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

// policies writes what is allowed: RateLimit-Policy: "name";q=100;w=60.
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

// item begins a list item in the value that began at start.
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

// quoted writes s as the inside of a structured-field string, with every from
// byte replaced by to. Such strings hold ASCII only: the rest becomes '?'.
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

// tightest returns the index of the limit of which the smallest share is left,
// -1 if there is none. One that does not say what is left comes last.
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

// wholeSeconds returns d in seconds, rounded up. It stops short of a billion, 31
// years, where readers take a number for the time since 1970.
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
