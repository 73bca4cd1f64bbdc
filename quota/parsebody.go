package quota

import (
	"bytes"
	"encoding/json"
	"net/http"
	"time"
)

// Some APIs state only in the body that they refuse: GraphQL and Slack inside a 200, GitHub's
// secondary limit in a 403, DynamoDB in a 400. Telegram and Google state the delay there.

// maxPeek is the number of bytes of a body that are read.
const maxPeek = 8 << 10

// ReadBody adds to rep what the first bytes of a body state: that the response is a refusal,
// until when, and what is left. rep is what Parse returned for the same response. At most 8 KiB
// are read, and a truncated body is read as far as it goes.
//
// Error codes at known places make a 403, 429 or 503 a refusal. Phrases do so on 429 and 503
// only, since other errors may speak of rate limits and be about something else. On every
// other status only the codes of the host's Vendor count, and inside a 200 the codes of errors.
func (r *Reader) ReadBody(status int, h http.Header, peek []byte, rep *Report) {
	defer rep.resolve(status)
	peek = peek[:min(len(peek), maxPeek)]
	if r.Body != nil {
		r.Body(status, h, peek, rep)
		return
	}
	b := bodyReader{status: status, vendor: rep.vendor}
	if t := bytes.TrimSpace(peek); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
		d := json.NewDecoder(bytes.NewReader(t))
		d.UseNumber()
		b.json = d
		b.value(jsonPlace{known: true}, 0)
	} else if status >= 400 {
		b.text(string(peek))
		b.vendorText(string(peek))
	}
	b.tell(rep)
}

// A bodyReader walks through a body and notes what is about limits.
type bodyReader struct {
	json   *json.Decoder
	status int
	vendor *Vendor // what is known about the host; nil: nothing

	refused, permanent, global bool
	secondary                  bool // the words of GitHub's secondary limit
	hasDelay                   bool
	delay                      time.Duration
	cost                       costState
	violated                   []string
}

// costState is the throttleStatus of Shopify's GraphQL.
type costState struct{ maximum, left, rate number }

// A jsonPlace says where a JSON value stands.
type jsonPlace struct {
	key     string // of the innermost object
	inError bool   // inside of what reports an error
	known   bool   // at the top, or inside of objects that APIs put error codes into
}

// secondaryWait is how long GitHub documents to wait after its secondary limit has refused
// a request without a header that says until when.
const secondaryWait = time.Minute

// maxDepth is the number of levels of JSON that are read.
const maxDepth = 12

// value reads one JSON value, that of m. It returns false at the end or at a mistake.
func (b *bodyReader) value(m jsonPlace, depth int) bool {
	t, err := b.json.Token()
	if err != nil || depth > maxDepth {
		return false
	}
	switch t := t.(type) {
	case json.Delim:
		return b.inside(t == '{', m, depth)
	case string:
		m.inError = m.inError || depth == 1 && m.key == "error"
		b.string(m, depth, t)
	case json.Number:
		n, _ := parseNumber(string(t))
		b.number(m.key, n)
	case bool:
		b.global = b.global || t && m.key == "global"
	}
	return true
}

// inside reads the members of an object or an array.
func (b *bodyReader) inside(object bool, m jsonPlace, depth int) bool {
	m.inError = m.inError || m.key == "errors" || m.key == "error"
	m.known = m.known && (depth == 0 || holdsCodes(m.key))
	for b.json.More() {
		if object {
			t, err := b.json.Token()
			name, ok := t.(string)
			if err != nil || !ok {
				return false
			}
			m.key = name
		}
		if !b.value(m, depth+1) {
			return false
		}
	}
	_, err := b.json.Token()
	return err == nil
}

// holdsCodes reports whether key is a member that APIs put error codes into. "" is that of
// an array at the top.
func holdsCodes(key string) bool {
	switch key {
	case "", "error", "errors", "Error", "Errors", "extensions", "details", "detail", "fault":
		return true
	}
	return false
}

// isCodeKey reports whether key is that of an error code.
func isCodeKey(key string) bool {
	switch key {
	case "type", "code", "error", "reason", "status", "errorCode", "error_code", "errorcode", "__type", "Code":
		return true
	}
	return false
}

// string reads a string. In a success only the code of an error counts, since anything else
// may be data.
func (b *bodyReader) string(m jsonPlace, depth int, s string) {
	switch {
	case m.key == "retryDelay":
		if d, ok := parseDuration(s); ok {
			b.wait(d)
		}
	case m.key == "violated-policies" && b.status >= 400:
		if len(b.violated) < maxEntries {
			b.violated = append(b.violated, s[:min(len(s), maxName)])
		}
	case m.key == "message" && b.status >= 400:
		if m.known && depth <= 3 {
			b.text(s)
		}
	case m.key == "message" && m.inError:
		b.refused = b.refused || s == "Throttled"
	case isCodeKey(m.key) && m.known && (m.inError || b.status >= 400):
		b.code(s)
	}
}

// code reads an error code.
func (b *bodyReader) code(s string) {
	if b.vendor.hasCode(s) {
		b.refused = true
		return
	}
	switch b.status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, 529:
		b.permanent = b.permanent || isPermanent(s)
		b.refused = b.refused || isRefusal(s)
	default:
		b.refused = b.refused || b.status < 400 && isRefusal(s)
	}
}

func (b *bodyReader) number(key string, n number) {
	if n.negative {
		return
	}
	switch key {
	case "retry_after", "retryAfter", "retry_after_seconds", "retryAfterSeconds":
		b.wait(n.times(time.Second))
	case "retry_after_ms", "retryAfterMs":
		b.wait(n.times(time.Millisecond))
	case "maximumAvailable":
		b.cost.maximum = n
	case "currentlyAvailable":
		b.cost.left = n
	case "restoreRate":
		b.cost.rate = n
	}
}

func (b *bodyReader) wait(d time.Duration) {
	b.delay, b.hasDelay = max(b.delay, d), true
}

// tell adds what was found to rep.
func (b *bodyReader) tell(rep *Report) {
	rep.Violated = append(rep.Violated, b.violated...)
	rep.Throttled = rep.Throttled || b.refused
	rep.marked = rep.marked || b.refused
	if b.secondary {
		rep.documented = secondaryWait
	}
	if b.permanent {
		rep.Permanent, rep.Throttled = true, false
	}
	b.tellCost(rep)
	if !rep.Throttled {
		return
	}
	rep.Global = rep.Global || b.global
	if b.hasDelay && (!rep.HasRetryAfter || b.delay > rep.RetryAfter) {
		rep.RetryAfter, rep.HasRetryAfter, rep.RetryForm = b.delay, true, DeltaSeconds
	}
}

func (b *bodyReader) tellCost(rep *Report) {
	if b.cost.maximum.whole == 0 {
		return
	}
	rep.Limits = append(rep.Limits, Limit{
		Name: "cost", Unit: "points", Limit: b.cost.maximum.whole, Remaining: b.cost.left.whole,
		HasLimit: true, HasRemaining: true, Rate: b.cost.rate.float(),
	})
}
