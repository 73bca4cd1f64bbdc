package throttlehttp

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/heed-go/heed/throttle"
)

// Problem types of draft-ietf-httpapi-ratelimit-headers, for Refusal.Type.
const (
	QuotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	ReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	AbnormalUsage   = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// A Refusal is why a request is not served, and an http.Handler that says so. A
// Middleware.Refused may look at it, change it and let it answer:
//
//	f, _ := throttlehttp.RefusalFrom(r.Context())
//	if f.Decision.Policy == "penalty" {
//		f.Type = throttlehttp.AbnormalUsage
//	}
//	f.ServeHTTP(w, r)
type Refusal struct {
	// Decision is that of the limit that refused. Its Policy is a name that clients
	// should not see; "unidentified" if the request does not say whose it is, see
	// TurnAway, and "full line" if too many are waiting, see Middleware.Waiter.
	Decision throttle.Decision

	Status int    // of the answer: 429, or 403 for the unidentified
	Type   string // of the problem, a URI; "": the status says it all
}

const fullLine = "full line"

var (
	unidentified = Refusal{Decision: throttle.Decision{Policy: "unidentified", Wait: throttle.Forever}, Status: http.StatusForbidden}
	undecided    = Refusal{Status: http.StatusServiceUnavailable}
)

// refusalOf returns what is said when a limit decided d.
func refusalOf(d throttle.Decision) Refusal {
	f := Refusal{Decision: d, Status: http.StatusTooManyRequests, Type: QuotaExceeded}
	if d.Policy == fullLine {
		f.Type = ReducedCapacity
	}
	return f
}

type refusalKey struct{}

// in returns r with f for RefusalFrom to find.
func (f Refusal) in(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), refusalKey{}, f))
}

// RefusalFrom returns why the request of ctx was refused. It is false outside of
// Middleware.Refused.
func RefusalFrom(ctx context.Context) (Refusal, bool) {
	f, ok := ctx.Value(refusalKey{}).(Refusal)
	return f, ok
}

// ServeHTTP answers with f.Status and a few words, in the form that the client likes
// best: problem details (RFC 9457) for programs and whoever likes anything, a page for
// browsers, or text. When to come back is taken from the Retry-After of w, so that all
// say the same; in problem details it is the member retry_after, in seconds.
//
// The answer is not to be stored. An unread body of the request is left to the server:
// that of net/http reads on if it is small, to keep the connection, and otherwise
// closes it.
func (f Refusal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k := preferred(r.Header["Accept"])
	h := w.Header()
	seconds, _ := strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	body := f.body(k, seconds)
	for _, other := range [...]string{"Content-Encoding", "Etag", "Last-Modified"} {
		h.Del(other) // of the answer that is not to come
	}
	h.Set("Content-Type", k.contentType())
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// body says what f is, in so many words of ours and nobody else's: no names of limits,
// no keys, no errors.
func (f Refusal) body(k kind, seconds int64) []byte {
	title, detail := f.title(), f.detail(seconds)
	b := make([]byte, 0, 320)
	switch k {
	case asPage:
		b = append(b, `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>`...)
		b = append(append(b, title...), "</title></head>\n<body>\n<h1>"...)
		b = append(append(b, title...), "</h1>\n<p>"...)
		return append(append(b, detail...), "</p>\n</body>\n</html>\n"...)
	case asText:
		b = append(append(b, title...), ". "...)
		return append(append(b, detail...), '\n')
	}
	b = append(append(b, "{\n  \"type\": "...), f.uri()...)
	b = append(append(b, ",\n  \"title\": \""...), title...)
	b = strconv.AppendInt(append(b, "\",\n  \"status\": "...), int64(f.Status), 10)
	b = append(append(append(b, ",\n  \"detail\": \""...), detail...), '"')
	if seconds > 0 {
		b = strconv.AppendInt(append(b, ",\n  \"retry_after\": "...), seconds, 10)
	}
	return append(b, "\n}\n"...)
}

// uri returns f.Type in JSON.
func (f Refusal) uri() []byte {
	if f.Type == "" {
		return []byte(`"about:blank"`)
	}
	b, _ := json.Marshal(f.Type) // a string has no errors
	return b
}

// title says in a few words what f.Type means.
func (f Refusal) title() string {
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
	return "Refused"
}

// detail says when to come back, or why not.
func (f Refusal) detail(seconds int64) string {
	switch {
	case f.Decision.Policy == unidentified.Decision.Policy:
		return "This request does not say whose it is."
	case f.Decision.Wait == throttle.Forever:
		return "This request cannot be taken at any time."
	case seconds <= 0:
		return "Try again later."
	}
	return "Try again in " + forPeople(seconds) + "."
}

// forPeople returns so many seconds in the unit that people would say it in, rounded
// up: nobody is to come too early.
func forPeople(seconds int64) string {
	n, unit := seconds, "second"
	for _, u := range [...]struct {
		name    string
		seconds int64
	}{{"minute", 60}, {"hour", 3600}, {"day", 86400}} {
		if seconds > 2*u.seconds {
			n, unit = (seconds+u.seconds-1)/u.seconds, u.name
		}
	}
	if n != 1 {
		unit += "s"
	}
	return strconv.FormatInt(n, 10) + " " + unit
}
