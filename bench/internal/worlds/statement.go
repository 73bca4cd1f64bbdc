package worlds

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// A HeaderKind is a family of headers that state a limit.
type HeaderKind string

// The families of headers.
const (
	NoHeaders     HeaderKind = "no headers"
	XRateLimit    HeaderKind = "X-RateLimit-*"
	Draft6        HeaderKind = "RateLimit-*"
	Draft7        HeaderKind = "RateLimit of draft 7"
	Draft8        HeaderKind = "RateLimit of draft 8"
	XRateLimitLow HeaderKind = "X-Rate-Limit-* without reset"
)

// A ResetKind is the form of a reset.
type ResetKind string

// The forms of resets. Draft 6 to 8 have always Seconds.
const (
	Seconds      ResetKind = "seconds"
	UnixSeconds  ResetKind = "Unix time"
	UnixMillis   ResetKind = "Unix time in ms"
	DateOfReset  ResetKind = "date"
	ResetMissing ResetKind = "no reset"
)

// A Rounding is how times are rounded to seconds.
type Rounding string

// The ways of rounding.
const (
	Up      Rounding = "up"
	Down    Rounding = "down"
	Nearest Rounding = "nearest"
)

// A Dialect is how a server states a limit.
type Dialect struct {
	Headers  HeaderKind
	Reset    ResetKind
	Rounding Rounding
	OnlyLow  bool // accepted requests have headers only while less than a fifth is left
}

// String describes d.
func (d Dialect) String() string {
	if d.Headers == NoHeaders {
		return fmt.Sprintf("no headers (rounded %s)", d.Rounding)
	}
	s := fmt.Sprintf("%s %s rounded %s", d.Headers, d.Reset, d.Rounding)
	if d.OnlyLow {
		s += " when low"
	}
	return s
}

// round returns d in seconds.
func (r Rounding) round(d time.Duration) int64 {
	switch r {
	case Up:
		d += time.Second - 1
	case Nearest:
		d += time.Second / 2
	}
	return int64(max(d, 0) / time.Second)
}

// write adds the headers of d to h. now and reset are times since 1970. It returns the time of the
// reset as the headers state it, or 0.
func (d Dialect) write(h http.Header, limit, remaining int, window, now, reset time.Duration) time.Duration {
	left := d.Rounding.round(reset - now)
	stated := now + time.Duration(left)*time.Second
	seconds := strconv.FormatInt(left, 10)
	switch d.Headers {
	case NoHeaders:
		return 0
	case XRateLimit:
		h["X-Ratelimit-Limit"] = []string{strconv.Itoa(limit)}
		h["X-Ratelimit-Remaining"] = []string{strconv.Itoa(remaining)}
		switch d.Reset {
		case ResetMissing:
			return 0
		case UnixSeconds:
			at := d.Rounding.round(reset)
			seconds, stated = strconv.FormatInt(at, 10), time.Duration(at)*time.Second
		case UnixMillis:
			seconds, stated = strconv.FormatInt(int64(reset/time.Millisecond), 10), reset.Truncate(time.Millisecond)
		case DateOfReset:
			at := d.Rounding.round(reset)
			seconds, stated = time.Unix(at, 0).UTC().Format(http.TimeFormat), time.Duration(at)*time.Second
		}
		h["X-Ratelimit-Reset"] = []string{seconds}
	case XRateLimitLow:
		h["X-Rate-Limit-Limit"] = []string{strconv.Itoa(limit)}
		h["X-Rate-Limit-Remaining"] = []string{strconv.Itoa(remaining)}
		return 0
	case Draft6:
		h["Ratelimit-Limit"] = []string{strconv.Itoa(limit)}
		h["Ratelimit-Remaining"] = []string{strconv.Itoa(remaining)}
		h["Ratelimit-Reset"] = []string{seconds}
	case Draft7:
		h["Ratelimit"] = []string{fmt.Sprintf("limit=%d, remaining=%d, reset=%s", limit, remaining, seconds)}
		h["Ratelimit-Policy"] = []string{fmt.Sprintf("%d;w=%d", limit, int64(window/time.Second))}
	case Draft8:
		h["Ratelimit"] = []string{fmt.Sprintf(`"default";r=%d;t=%s`, remaining, seconds)}
		h["Ratelimit-Policy"] = []string{fmt.Sprintf(`"default";q=%d;w=%d`, limit, int64(window/time.Second))}
	}
	return stated
}

// A StatementKind is why a statement is not true.
type StatementKind string

// The kinds of statements that are not enforced.
const (
	Distant       StatementKind = "never reached"         // a large limit, counted correctly
	ConstantValue StatementKind = "constant"              // the same values in each response
	Cached        StatementKind = "cached"                // the values of a response of the latest 10 s
	OtherClients  StatementKind = "another client's"      // each response has the values of another client
	SomeOthers    StatementKind = "some another client's" // some responses have 0 left, of another client
	WrongScope    StatementKind = "wrong scope"           // counted for each route, stated without a name
	Vanishing     StatementKind = "vanishing"             // constant values, and later no headers
	Daily         StatementKind = "daily"                 // what is left until midnight decreases to 0 and stays
	CountedDown   StatementKind = "counted down"          // what is left in the window decreases to 0 and stays
)

// A Statement is a limit that the server states and does not enforce.
type Statement struct {
	Kind      StatementKind
	Dialect   Dialect
	Count     int // the stated limit
	Remaining int // what is left at the start
	Window    time.Duration
	Share     float64       // of the responses, if Kind is SomeOthers
	Until     time.Duration // the end of the headers, if Kind is Vanishing
}

// String describes s.
func (s *Statement) String() string {
	return fmt.Sprintf("states %s %d of %d per %s (%s)", s.Kind, s.Remaining, s.Count, s.Window, s.Dialect)
}

// write adds the headers of an attempt to h, at a time since the start of the world
// and a time since 1970. n is the number of requests in the scope and window of s before it.
func (s *Statement) write(w *World, h http.Header, call, attempt, n int, at, now time.Duration) {
	reset := now - now%s.Window + s.Window
	remaining := s.Remaining
	switch s.Kind {
	case Distant, CountedDown, WrongScope, Daily:
		remaining = max(s.Remaining-n, 0)
	case Cached:
		age := at % cacheTime
		reset -= age
		remaining = int(w.uniform(forStatement, int(at/cacheTime), 0) * float64(s.Count) / 5)
	case OtherClients:
		remaining = int(w.uniform(forStatement, call, attempt) * float64(s.Count))
	case SomeOthers:
		if w.uniform(forStatement, call, attempt) < s.Share {
			remaining = 0
		}
	case Vanishing:
		if at > s.Until {
			return
		}
	}
	s.Dialect.write(h, s.Count, remaining, s.Window, now, reset)
}

// cacheTime is the time for which a cache keeps a response with its headers.
const cacheTime = 10 * time.Second

// scope returns a number for what s counts the requests of.
func (s *Statement) scope(c call, now time.Duration) [2]int {
	window := int(now / s.Window)
	if s.Kind == WrongScope {
		return [2]int{int(c.route), window}
	}
	return [2]int{0, window}
}
