package poll

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/httpbody"
	"github.com/heed-go/heed/internal/httphost"
)

// An Operation is what has to be known of a long-running operation to follow it
// further, also in another process: it may be kept as JSON. Keep it as secret as the
// URLs in it.
type Operation struct {
	URL string // to be asked how it stands

	// The other fields may be empty if only the URL is known.

	Monitor  bool      `json:",omitempty"` // URL tells a status; else it answers 202 until it has the result
	Method   string    `json:",omitempty"` // of the request that began it
	Origin   string    `json:",omitempty"` // URL of that; Poller.Header is for its host. "": URL
	Location string    `json:",omitempty"` // where a monitor's result is, if it is no PUT or PATCH; "": not said
	Next     time.Time // not to be asked before; zero: at once

	Status  string  `json:",omitempty"` // as the server called it last
	Percent float64 `json:",omitempty"` // done, 0 to 100; 0: not said
	Polls   int     `json:",omitempty"` // times it was asked
}

var (
	// ErrFailed is matched by an Error of an operation that ended badly. There
	// is nothing to resume then.
	ErrFailed = errors.New("poll: operation failed")

	errNoStatus = errors.New("poll: the response has no status: set Poller.ParseStatus if the server reports it in another way, or Poller.MaxBody if it is long")
)

// An Error is an operation that was not followed to a good end. It matches Err.
type Error struct {
	Operation Operation // hand it to Poller.Resume to go on
	Body      string    // beginning of the last answer's body, at most 256 bytes; "": there was none
	Err       error     // why: ErrFailed, heed.ErrMaxWait, what ended the context, or what a look failed with
}

// Error says how the operation stood, and why it was not followed further.
func (e *Error) Error() string {
	s := "poll: operation"
	if u, err := url.Parse(e.Operation.URL); err == nil && e.Operation.URL != "" {
		s += " " + httpbody.RedactURL(u)
	}
	if e.Operation.Status != "" {
		s += " has status " + strconv.Quote(e.Operation.Status)
	}
	s += " after " + strconv.Itoa(e.Operation.Polls) + " polls: " + e.Err.Error()
	if e.Body != "" {
		s += ": " + strconv.Quote(e.Body)
	}
	return s
}

// Unwrap returns e.Err.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether time ran out, as net.Error understands it.
func (e *Error) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// statusError is the status of a response that a Poller does not poll again after.
type statusError int

func (s statusError) Error() string {
	return "poll: server responded " + strconv.Itoa(int(s)) + " " + http.StatusText(int(s))
}

// operationOf returns the operation that resp began; its URL is empty if it began none.
func operationOf(resp *http.Response, body []byte) (op Operation, err error) {
	if resp.StatusCode >= 300 || resp.Request == nil {
		return op, nil
	}
	h := resp.Header
	target := h.Get("Azure-AsyncOperation")
	if target == "" {
		target = h.Get("Operation-Location")
	}
	op.Monitor = target != ""
	switch {
	case op.Monitor:
	case resp.StatusCode == http.StatusAccepted && h.Get("Location") != "":
		target = h.Get("Location")
	case isUpdate(resp.Request.Method) && !isFinalStatus(provisioningState(body)):
		target = resp.Request.URL.String()
	default:
		return op, nil
	}
	op.Method, op.Origin = resp.Request.Method, resp.Request.URL.String()
	if op.Monitor && h.Get("Location") != "" {
		if op.Location, err = resolve(resp, h.Get("Location")); err != nil {
			return op, err
		}
	}
	op.URL, err = resolve(resp, target)
	return op, err
}

// isUpdate reports whether the result of method is what its URL names.
func isUpdate(method string) bool { return method == http.MethodPut || method == http.MethodPatch }

// relocate takes over a new URL, which only those without a monitor get.
func (o *Operation) relocate(resp *http.Response) (err error) {
	if target := resp.Header.Get("Location"); !o.Monitor && resp.StatusCode == http.StatusAccepted && target != "" {
		o.URL, err = resolve(resp, target)
	}
	return err
}

// result returns where the result is; "": in the last answer.
func (o *Operation) result() string {
	switch {
	case !o.Monitor:
		return ""
	case isUpdate(o.Method):
		return o.Origin
	case o.Method == http.MethodPost:
		return o.Location
	}
	return ""
}

// resolve returns ref as an absolute URL, as seen from resp.
func resolve(resp *http.Response, ref string) (string, error) {
	u, err := resp.Request.URL.Parse(ref)
	if err != nil {
		return "", fmt.Errorf("poll: the server's URL of the operation is invalid: %w", err)
	}
	if u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("poll: the server's URL of the operation has the scheme %q: it must be http or https", u.Scheme)
	}
	u.Fragment = ""
	return u.String(), nil
}

// headerFor returns what of h may go to u. As http.Client does with redirects, what
// may be a credential goes to the host of the origin and those below it only; and not
// over http if it went over https.
func (o *Operation) headerFor(u *url.URL, h http.Header) http.Header {
	origin := o.Origin
	if origin == "" {
		origin = o.URL
	}
	from, err := url.Parse(origin)
	if err == nil && (from.Scheme != "https" || u.Scheme == "https") && sameDomain(u.Hostname(), from.Hostname()) {
		return cloneHeader(h)
	}
	public := http.Header{}
	for _, name := range [...]string{"Accept", "Accept-Language", "User-Agent"} {
		if v := h[name]; v != nil {
			public[name] = v
		}
	}
	return public
}

func cloneHeader(h http.Header) http.Header {
	if h == nil {
		return http.Header{}
	}
	return h.Clone()
}

// sameDomain reports whether host is parent or in its domain.
func sameDomain(host, parent string) bool {
	host, parent = httphost.Name(host), httphost.Name(parent)
	return host == parent || !strings.Contains(host, ":") && strings.HasSuffix(host, "."+parent)
}

// pollHeader returns h without what belongs to the request that it was sent with: its
// body, its conditions, its key. Cookies are left to the client's jar if it has one.
func pollHeader(h http.Header, client *http.Client) http.Header {
	h = cloneHeader(h)
	for name := range h {
		if strings.HasPrefix(name, "Content-") || strings.HasPrefix(name, "If-") {
			delete(h, name)
		}
	}
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key", "Expect", "Prefer", "Range", "Trailer", "Transfer-Encoding", "Accept-Encoding"} {
		delete(h, name)
	}
	if client != nil && client.Jar != nil {
		delete(h, "Cookie")
	}
	return h
}

// parseAzureStatus reads how an operation stands, as Azure tells it.
func parseAzureStatus(resp *http.Response, body []byte, monitor bool) (s Status, err error) {
	if monitor {
		var monitorBody struct {
			Status   string  `json:"status"`
			Percent  float64 `json:"percentComplete"`
			Resource string  `json:"resourceLocation"`
		}
		_ = json.Unmarshal(body, &monitorBody) // what is no JSON has no status
		redirected := resp.Request.Response != nil
		if monitorBody.Status == "" && resp.StatusCode != http.StatusAccepted && !redirected {
			return s, errNoStatus // a redirect leads from a monitor to the result
		}
		s = Status{Status: monitorBody.Status, Percent: monitorBody.Percent, ResultURL: monitorBody.Resource}
	} else {
		s.Status = provisioningState(body)
	}
	if s.Status == "" {
		s.Done = resp.StatusCode != http.StatusAccepted
		return s, nil
	}
	s.Done = isFinalStatus(s.Status)
	s.Failed = s.Done && !strings.EqualFold(s.Status, "Succeeded")
	return s, nil
}

// isFinalStatus reports whether status is that of an operation that has ended, or none.
func isFinalStatus(status string) bool {
	switch strings.ToLower(status) {
	case "", "succeeded", "failed", "canceled", "cancelled":
		return true
	}
	return false
}

// provisioningState returns the state that a resource tells of itself; "": none.
func provisioningState(body []byte) string {
	var resource struct {
		Properties struct {
			State string `json:"provisioningState"`
		} `json:"properties"`
	}
	if json.Unmarshal(body, &resource) != nil {
		return ""
	}
	return resource.Properties.State
}

// peekBody reads the beginning of the body of resp, and puts it back.
func (p *Poller) peekBody(resp *http.Response) ([]byte, error) {
	limit := p.MaxBody
	if limit <= 0 {
		limit = 1 << 20
	}
	if !httpbody.HasBody(resp) {
		return nil, nil
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	whole := io.MultiReader(bytes.NewReader(data), resp.Body)
	if err != nil {
		whole = io.MultiReader(bytes.NewReader(data), httpbody.ErrReader{Err: err})
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{whole, resp.Body}
	return data, err
}
