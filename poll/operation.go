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

// An Operation identifies a long-running operation and holds its last known status. It
// can be stored as JSON, and another process can resume it with Poller.Resume. Its URLs
// may contain secrets, so it must be protected like them.
type Operation struct {
	// Version is the version of this format, 1. Zero means 1. Resume does not accept a later one, whose meaning it
	// does not know.
	Version int

	// URL is the URL to poll.
	URL string

	// The other fields may be zero if only the URL is known.

	// Monitor reports whether URL is a status monitor, whose responses state a status.
	// Otherwise URL responds with 202 until it responds with the result.
	Monitor bool `json:",omitempty"`

	// Method is the method of the request that began the operation.
	Method string `json:",omitempty"`

	// Origin is the URL of the request that began the operation. Poller.Header is sent to
	// its host. Empty means URL.
	Origin string `json:",omitempty"`

	// Location is the URL of the result if Monitor is set and Method is POST. Empty means
	// that it is not known.
	Location string `json:",omitempty"`

	// Next is the earliest time of the next poll. Zero means immediately.
	Next time.Time

	// Status is the last known status, by the server's name for it.
	Status string `json:",omitempty"`

	// Percent is the completed part, from 0 to 100. Zero also means that it is not known.
	Percent float64 `json:",omitempty"`

	// Polls is the number of polls so far.
	Polls int `json:",omitempty"`
}

const operationVersion = 1

var (
	// ErrFailed means that the server reports that the operation has failed. Such an
	// operation cannot be resumed.
	ErrFailed = errors.New("poll: operation failed")

	// errNoStatus means that a response of a status monitor has no status.
	errNoStatus = errors.New("poll: the response has no status: set Poller.ParseStatus if the server reports it in another way, or Poller.MaxBody if it is long")
)

// An Error describes an operation that failed or was not followed to its end. It matches
// Err.
type Error struct {
	// Operation is the state of the operation. Pass it to Poller.Resume to continue.
	Operation Operation

	// Body holds the first bytes of the last response body, at most 256. It is "" if
	// there was none.
	Body string

	// Err is the reason: ErrFailed, heed.ErrMaxWait, the cause of the context's end, or
	// the error of a poll.
	Err error
}

// Error returns a message with the URL, without its secrets, the status and the reason.
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

// Timeout reports whether Err is a timeout, as defined by net.Error.
func (e *Error) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// A statusError is a response status after which a Poller does not poll again.
type statusError int

func (s statusError) Error() string {
	return "poll: server responded " + strconv.Itoa(int(s)) + " " + http.StatusText(int(s))
}

// operationOf returns the operation that resp began. Its URL is empty if there is none.
func operationOf(resp *http.Response, body []byte) (op Operation, err error) {
	op.Version = operationVersion
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

// isUpdate reports whether the result of method is the resource at the URL of the
// request.
func isUpdate(method string) bool { return method == http.MethodPut || method == http.MethodPatch }

// relocate updates the URL of an operation without a monitor from the Location of a 202.
func (o *Operation) relocate(resp *http.Response) (err error) {
	if target := resp.Header.Get("Location"); !o.Monitor && resp.StatusCode == http.StatusAccepted && target != "" {
		o.URL, err = resolve(resp, target)
	}
	return err
}

// result returns the URL of the result, or "" if the last response is the result.
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

// resolve returns ref as an absolute URL, relative to the URL of the request of resp.
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

// headerFor returns the fields of h that may be sent to u. As http.Client does with
// redirects, it removes fields that may hold credentials unless u is on the host of the
// origin or a subdomain of it. It also removes them if the origin uses https and u does
// not.
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

// cloneHeader returns a copy of h that is not nil.
func cloneHeader(h http.Header) http.Header {
	if h == nil {
		return http.Header{}
	}
	return h.Clone()
}

// sameDomain reports whether host is parent or a subdomain of it.
func sameDomain(host, parent string) bool {
	host, parent = httphost.Name(host), httphost.Name(parent)
	return host == parent || !strings.Contains(host, ":") && strings.HasSuffix(host, "."+parent)
}

// pollHeader returns h without the fields that describe the body, conditions or
// idempotency key of the original request. It removes cookies if client has a cookie jar,
// which adds them itself.
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

// parseAzureStatus returns the status of an operation by the rules of Azure.
func parseAzureStatus(resp *http.Response, body []byte, monitor bool) (s Status, err error) {
	if monitor {
		var monitorBody struct {
			Status   string  `json:"status"`
			Percent  float64 `json:"percentComplete"`
			Resource string  `json:"resourceLocation"`
		}
		_ = json.Unmarshal(body, &monitorBody) // other content has no status
		redirected := resp.Request.Response != nil
		if monitorBody.Status == "" && resp.StatusCode != http.StatusAccepted && !redirected {
			return s, errNoStatus // after a redirect the response is the result
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

// isFinalStatus reports whether status is empty or that of an operation that has ended.
func isFinalStatus(status string) bool {
	switch strings.ToLower(status) {
	case "", "succeeded", "failed", "canceled", "cancelled":
		return true
	}
	return false
}

// provisioningState returns the provisioningState of a resource in body, or "" if there
// is none.
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

// peekBody returns the first MaxBody bytes of the body of resp. The body of resp remains
// complete.
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
