package worlds

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

// An Attribute is what decides whether a Trouble affects an attempt.
type Attribute string

// The attributes of requests that troubles depend on.
const (
	ByRequest  Attribute = "request"
	ByBackend  Attribute = "backend" // chosen at random for each attempt, as a load balancer does
	ByResource Attribute = "resource"
	ByTenant   Attribute = "tenant"
	ByRoute    Attribute = "route"
)

// The statuses of a Trouble that are no status codes.
const (
	Reset   = -1 // the connection is closed after the request was sent
	GoAway  = -2 // the HTTP/2 connection is closed with GOAWAY
	Refused = -3 // the connection cannot be opened
)

// A Trouble is a reason for which requests fail although no limit is exceeded.
type Trouble struct {
	By     Attribute
	Share  float64       // of what By names
	Count  int           // of the backends; only if By is ByBackend
	From   time.Duration // since the start of the world
	To     time.Duration // zero means until the end
	Period time.Duration // the interval recurs; zero means that it does not

	Status  int // a status code, or Reset, GoAway or Refused
	Body    int // number of the body, see bodies
	Retry   RetryAfter
	Seconds int     // of Retry
	Slow    float64 // the response takes so many times the latency

	// Permission is set if Status is the right response, so that the call succeeds with it.
	Permission bool
}

// A RetryAfter is the kind of a Retry-After header.
type RetryAfter string

// The kinds of Retry-After headers.
const (
	NoRetryAfter RetryAfter = ""
	AfterSeconds RetryAfter = "seconds"
	AfterDate    RetryAfter = "date"
	AfterEnd     RetryAfter = "until the end" // of the interval, in seconds
	AfterPast    RetryAfter = "past date"
	AfterText    RetryAfter = "text" // not a valid value
)

// String describes t.
func (t Trouble) String() string {
	s := fmt.Sprintf("%s by %s: %s", percent(t.Share), t.By, statusName(t.Status))
	if t.By == ByBackend {
		s = fmt.Sprintf("%s of %d backends: %s", percent(t.Share), t.Count, statusName(t.Status))
	}
	if t.Permission {
		s += " is right"
	}
	switch t.Retry {
	case NoRetryAfter:
	case AfterSeconds, AfterDate:
		s += fmt.Sprintf(" Retry-After %s %d", t.Retry, t.Seconds)
	default:
		s += " Retry-After " + string(t.Retry)
	}
	if t.Slow != 1 {
		s += fmt.Sprintf(" after %.2g latencies", t.Slow)
	}
	if t.To > 0 {
		s += fmt.Sprintf(" from %s to %s", short(t.From), short(t.To))
	}
	if t.Period > 0 {
		s += " every " + short(t.Period)
	}
	return s
}

// Rejects reports whether t is a rejection in the sense of the tracker: a 429, or a 503
// with a Retry-After header.
func (t Trouble) Rejects() bool {
	return t.Status == http.StatusTooManyRequests || t.Status == http.StatusServiceUnavailable && t.Retry != NoRetryAfter
}

// total reports whether t affects all requests while it lasts.
func (t Trouble) total() bool { return t.Share >= 1 && !t.Permission }

// active reports whether t can affect requests at a time since the start of the world,
// and when it ends.
func (t Trouble) active(at time.Duration) (end time.Duration, ok bool) {
	if t.To == 0 {
		return 0, true
	}
	begin := at
	if t.Period > 0 && at >= t.From {
		begin = t.From + (at-t.From)%t.Period
	}
	if begin < t.From || begin >= t.To {
		return 0, false
	}
	return at - begin + t.To, true
}

// affects reports whether t affects an attempt while it is active. n is the number of t.
func (w *World) affects(t *Trouble, n, call, attempt int) bool {
	if t.Share >= 1 {
		return true
	}
	c := w.calls[call]
	switch t.By {
	case ByRequest:
		return w.uniform(forFault, call*4+n, attempt) < t.Share
	case ByBackend:
		return w.among(n, w.backend(call, attempt, t.Count), t.Count, t.Share)
	case ByResource:
		return w.uniform(forPick, n, int(c.route)*w.Load.Resources+int(c.resource)) < t.Share
	case ByTenant:
		return w.among(n, int(c.tenant), w.Load.Tenants, t.Share)
	default:
		return w.among(n, int(c.route), w.Load.Routes, t.Share)
	}
}

// among reports whether item is one of a share of count items, of which at least one and not
// all are chosen.
func (w *World) among(n, item, count int, share float64) bool {
	return (item+int(w.hash(forPick, n, 0)%uint64(count)))%count < chosenOf(count, share)
}

// chosenOf returns how many of count items among chooses for a share.
func chosenOf(count int, share float64) int {
	return min(max(int(share*float64(count)+.5), 1), max(count-1, 1))
}

// backend returns which of count backends receives an attempt.
func (w *World) backend(call, attempt, count int) int {
	return int(w.hash(forBackend, call, attempt) % uint64(max(count, 1)))
}

// rightStatus returns the status with which a call succeeds that is not below 400, or 0.
func (w *World) rightStatus(call int) int {
	for n := range w.Troubles {
		if t := &w.Troubles[n]; t.Permission && w.affects(t, n, call, 1) {
			return t.Status
		}
	}
	return 0
}

// statusName describes a status of a Trouble.
func statusName(status int) string {
	switch status {
	case Reset, 0:
		return "closed connection"
	case GoAway:
		return "GOAWAY"
	case Refused:
		return "refused connection"
	}
	return strconv.Itoa(status)
}

// connectionError returns the error of a request whose connection fails.
func connectionError(status int, n uint64) error {
	switch status {
	case GoAway:
		codes := [...]string{"NO_ERROR", "ENHANCE_YOUR_CALM", "INTERNAL_ERROR"}
		return fmt.Errorf("http2: server sent GOAWAY and closed the connection; LastStreamID=%d, ErrCode=%s, debug=\"\"", 1+2*(n%1000), codes[n%3])
	case Refused:
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	if n%3 == 0 {
		return io.EOF
	}
	if n%3 == 1 {
		return errServerClosedIdle
	}
	return &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
}

var errServerClosedIdle = errors.New("http: server closed idle connection")

// bodies are the bodies of responses as gateways and frameworks send them, by status.
// Other statuses have the bodies of 500.
var bodies = map[int][]string{
	429: {
		`{"message":"Too Many Requests"}`, "Too Many Requests\n", "",
		`{"error":{"code":"rate_limit_exceeded","message":"Rate limit exceeded"}}`,
		"<html>\r\n<head><title>429 Too Many Requests</title></head>\r\n<body>\r\n<center><h1>429 Too Many Requests</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n",
		`{"error":"too_many_requests","message":"Slow down"}`, "local_rate_limited",
		"You are being rate limited. Please try again later.",
	},
	503: {
		"upstream connect error or disconnect/reset before headers. reset reason: connection failure",
		"<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body>\r\n<center><h1>503 Service Temporarily Unavailable</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n",
		"no healthy upstream", `{"message":"Service Unavailable"}`, "", `{"error":{"type":"overloaded_error","message":"Overloaded"}}`,
		"<html><body><h1>503 Service Unavailable</h1>\nNo server is available to handle this request.\n</body></html>\n",
	},
	502: {
		"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body>\r\n<center><h1>502 Bad Gateway</h1></center>\r\n<hr><center>nginx/1.24.0</center>\r\n</body>\r\n</html>\r\n",
		`{"message": "Internal server error"}`, "Bad Gateway",
	},
	504: {
		"upstream request timeout", `{"message": "Endpoint request timed out"}`,
		"<html>\r\n<head><title>504 Gateway Time-out</title></head>\r\n<body>\r\n<center><h1>504 Gateway Time-out</h1></center>\r\n</body>\r\n</html>\r\n",
	},
	500: {"Internal Server Error\n", `{"error":{"code":"internal_error","message":"An unexpected error occurred"}}`, ""},
	403: {`{"message":"Forbidden"}`, `{"code":"QuotaExceeded","message":"The storage quota is exceeded."}`, "Forbidden\n", `{"error":{"code":403,"status":"PERMISSION_DENIED"}}`, ""},
	404: {`{"message":"Not Found"}`, "404 page not found\n"},
	200: {`{"id":1,"status":"ok"}`},
}

// body returns body n of a status.
func body(status, n int) string {
	list := bodies[status]
	if list == nil && status < 400 {
		list = bodies[200]
	}
	if list == nil {
		list = bodies[500]
	}
	return list[n%len(list)]
}
