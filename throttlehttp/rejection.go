package throttlehttp

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/heed-go/heed/throttle"
)

// Problem types of draft-ietf-httpapi-ratelimit-headers, for Rejection.Type.
const (
	QuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	ReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	AbnormalUsage   = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// A Rejection is the reason why a request is not served, and an http.Handler that writes the
// response. A Middleware.OnReject may inspect it, change it, and call its ServeHTTP:
//
//	f, _ := throttlehttp.RejectionFrom(r.Context())
//	if f.Decision.Policy == "ban" {
//		f.Type = throttlehttp.AbnormalUsage
//	}
//	f.ServeHTTP(w, r)
type Rejection struct {
	// Decision is the decision of the limit that rejected the request. Its Policy is a name
	// that clients should not see. It is "missing key" if a Rule found no key (see Reject),
	// and "queue full" if too many requests are waiting (see Middleware.Queue).
	Decision throttle.Decision

	// Status is the status of the response: 429, or 403 for a request without a key. Zero
	// means 429.
	Status int

	// Type is the type of the problem, a URI (RFC 9457). Empty means that the status
	// describes the problem completely.
	Type string
}

const queueFull = "queue full"

var (
	missingKey  = Rejection{Decision: throttle.Decision{Policy: "missing key", Wait: throttle.Forever}, Status: http.StatusForbidden}
	unavailable = Rejection{Status: http.StatusServiceUnavailable}
)

// rejectionOf returns the Rejection for the decision d of a limit.
func rejectionOf(d *throttle.Decision) Rejection {
	f := Rejection{Decision: *d, Status: http.StatusTooManyRequests, Type: QuotaExceeded}
	if d.Policy == queueFull {
		f.Type = ReducedCapacity
	}
	return f
}

type rejectionKey struct{}

// attachTo returns r with a context in which RejectionFrom finds f.
func (f *Rejection) attachTo(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), rejectionKey{}, *f))
}

// RejectionFrom returns the reason why the request of ctx was rejected. It returns false
// outside of Middleware.OnReject.
func RejectionFrom(ctx context.Context) (Rejection, bool) {
	f, ok := ctx.Value(rejectionKey{}).(Rejection)
	return f, ok
}

// ServeHTTP responds with f.Status and a short description in the format that the client
// prefers: problem details (RFC 9457) for programs and for clients without a preference, HTML
// for browsers, or plain text. The time to retry is taken from the Retry-After header of w, so
// that header and body agree; in problem details it is the member retry_after, in seconds.
//
// The response forbids caching, so it needs no Vary. ServeHTTP does not read the body of the
// request: the server of net/http reads a small rest of it to keep the connection, and otherwise
// closes the connection.
func (f Rejection) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.Status == 0 {
		f.Status = http.StatusTooManyRequests
	}
	h := w.Header()
	for _, other := range [...]string{"Content-Encoding", "Content-Length", "Etag", "Last-Modified"} {
		delete(h, other) // headers of the response that is not sent
	}
	f.write(w, r)
}

// write responds with f. The server adds Content-Length, and sends no body in response to HEAD.
func (f *Rejection) write(w http.ResponseWriter, r *http.Request) {
	k := negotiateFormat(r.Header["Accept"])
	h := w.Header()
	seconds := int64(0)
	if v := h["Retry-After"]; len(v) > 0 {
		seconds, _ = strconv.ParseInt(v[0], 10, 64)
	}
	buffer := bodyBuffers.Get().(*[]byte)
	body := f.appendBody((*buffer)[:0], k, seconds, f.policyIsPublic(h))
	v := []string{k.contentType(), "no-store", "nosniff"} // one allocation for all values
	h["Content-Type"], h["Cache-Control"], h["X-Content-Type-Options"] = v[0:1:1], v[1:2:2], v[2:]
	w.WriteHeader(f.Status)
	_, _ = w.Write(body)
	*buffer = body
	bodyBuffers.Put(buffer)
}

// bodyBuffers holds buffers of bodies as *[]byte.
var bodyBuffers = sync.Pool{New: func() any { return new([]byte) }}

// policyIsPublic reports whether the problem type of f defines violated-policies, and the
// headers of the response name the limit of f as a policy.
func (f *Rejection) policyIsPublic(h http.Header) bool {
	switch f.Type {
	case QuotaExceeded, ReducedCapacity, AbnormalUsage:
	default:
		return false
	}
	policies := h["Ratelimit-Policy"]
	if f.Decision.Policy == "" || len(policies) == 0 {
		return false
	}
	name := string(appendQuoted(nil, policyName(f.Decision.Policy)))
	return slices.ContainsFunc(policies, func(v string) bool { return strings.Contains(v, name) })
}

// appendQuoted appends s, which must be printable ASCII, as a string of JSON. A string of
// structured fields (RFC 9651) is the same.
func appendQuoted(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

// appendBody appends a description of f in constant texts. It contains no keys and no errors.
// The name of the limit appears only if it is public, in violated-policies, a member of problem
// details that draft-ietf-httpapi-ratelimit-headers defines.
func (f *Rejection) appendBody(b []byte, k format, seconds int64, public bool) []byte {
	title := f.title()
	switch k {
	case formatHTML:
		b = append(b, `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>`...)
		b = append(append(b, title...), "</title></head>\n<body>\n<h1>"...)
		b = append(append(b, title...), "</h1>\n<p>"...)
		return append(f.appendDetail(b, seconds), "</p>\n</body>\n</html>\n"...)
	case formatText:
		b = append(append(b, title...), ". "...)
		return append(f.appendDetail(b, seconds), '\n')
	}
	b = f.appendType(append(b, "{\n  \"type\": "...))
	b = append(append(b, ",\n  \"title\": \""...), title...)
	b = strconv.AppendInt(append(b, "\",\n  \"status\": "...), int64(f.Status), 10)
	b = append(f.appendDetail(append(b, ",\n  \"detail\": \""...), seconds), '"')
	if seconds > 0 {
		b = strconv.AppendInt(append(b, ",\n  \"retry_after\": "...), seconds, 10)
	}
	if public {
		b = appendQuoted(append(b, ",\n  \"violated-policies\": ["...), policyName(f.Decision.Policy))
		b = append(b, ']')
	}
	return append(b, "\n}\n"...)
}

// appendType appends f.Type in JSON.
func (f *Rejection) appendType(b []byte) []byte {
	switch f.Type {
	case "":
		return append(b, `"about:blank"`...)
	case QuotaExceeded, ReducedCapacity, AbnormalUsage:
		return append(append(append(b, '"'), f.Type...), '"')
	}
	other, _ := json.Marshal(f.Type) // marshaling a string cannot fail
	return append(b, other...)
}

// title returns a short description of f.Type.
func (f *Rejection) title() string {
	switch text := http.StatusText(f.Status); {
	case f.Type == ReducedCapacity:
		return "Too busy at the moment"
	case f.Type == AbnormalUsage:
		return "Unusual use"
	case f.Type == QuotaExceeded:
		return "Too many requests"
	case text != "":
		return text
	}
	return "Rejected"
}

// appendDetail appends when to retry, or why retrying does not help.
func (f *Rejection) appendDetail(b []byte, seconds int64) []byte {
	switch {
	case f.Decision == missingKey.Decision:
		return append(b, "This request does not say whose it is."...)
	case f.Decision.Wait == throttle.Forever:
		return append(b, "This request cannot be taken at any time."...)
	case seconds <= 0:
		return append(b, "Try again later."...)
	}
	n, unit := roundToUnit(seconds)
	b = strconv.AppendInt(append(b, "Try again in "...), n, 10)
	b = append(append(b, ' '), unit...)
	if n != 1 {
		b = append(b, 's')
	}
	return append(b, '.')
}

// roundToUnit converts seconds to the largest unit that they exceed twice, rounded up so that
// clients do not retry too early.
func roundToUnit(seconds int64) (n int64, unit string) {
	n, unit = seconds, "second"
	for _, u := range [...]struct {
		name    string
		seconds int64
	}{{"minute", 60}, {"hour", 3600}, {"day", 86400}} {
		if seconds > 2*u.seconds {
			n, unit = (seconds+u.seconds-1)/u.seconds, u.name
		}
	}
	return n, unit
}
