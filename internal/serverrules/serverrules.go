// Package serverrules decides about requests as the rate limiters of real servers do, and
// responds with their statuses and headers: for tests and measurements of clients.
//
// Each server is a function of the time and the path of a request. All requests are from one
// client. Comments name the software and the file or document from which the rule is taken.
package serverrules

import (
	"net/http"
	"strconv"
	"time"
)

// A Request is what a server knows of a request.
type Request struct {
	At   time.Time
	Path string
}

// A Reply is what a server does with a request. The zero Reply is status 200.
type Reply struct {
	Status int // zero means 200
	Header http.Header
	Delay  time.Duration // before the response, in addition to the usual one
	Drop   bool          // closes the connection without a response
	Hang   bool          // sends nothing and leaves the connection open
}

// OK reports whether the request was accepted.
func (r Reply) OK() bool { return (r.Status == 0 || r.Status == http.StatusOK) && !r.Drop && !r.Hang }

// A Server replies to requests in the order of their times. It must not be called
// concurrently.
type Server func(Request) Reply

// Before returns a server in front of next: next replies to the requests that s accepts.
func (s Server) Before(next Server) Server {
	return func(r Request) Reply {
		if reply := s(r); !reply.OK() {
			return reply
		}
		return next(r)
	}
}

// status returns a reply without headers.
func status(code int) Reply { return Reply{Status: code, Header: http.Header{}} }

func setInt(h http.Header, name string, n int64) { h.Set(name, strconv.FormatInt(n, 10)) }

// ceilSeconds and floorSeconds return d in whole seconds.
func ceilSeconds(d time.Duration) int64  { return int64((d + time.Second - 1) / time.Second) }
func floorSeconds(d time.Duration) int64 { return int64(d / time.Second) }

// ceilUnix returns t in whole seconds since 1970, rounded up.
func ceilUnix(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

// A window counts the requests of consecutive fixed windows, including rejected ones.
type window struct {
	limit   int64
	per     time.Duration
	aligned bool // windows are multiples of per since 1970; otherwise one begins with the first request after the end of another
	end     time.Time
	used    int64
}

// take counts a request and reports whether it is within the limit.
func (w *window) take(now time.Time) bool {
	if !now.Before(w.end) {
		start := now
		if w.aligned {
			start = time.Unix(0, now.UnixNano()/int64(w.per)*int64(w.per))
		}
		w.end, w.used = start.Add(w.per), 0
	}
	w.used++
	return w.used <= w.limit
}

func (w *window) remaining() int64                 { return max(w.limit-w.used, 0) }
func (w *window) left(now time.Time) time.Duration { return w.end.Sub(now) }
