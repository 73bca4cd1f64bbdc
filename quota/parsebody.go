package quota

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Some APIs say in the body only that they refuse: GraphQL and Slack inside a
// 200, GitHub's secondary limit in a 403, DynamoDB in a 400; Telegram and Google
// put the delay there.

// maxPeek is how much of a body is looked at, in bytes.
const maxPeek = 8 << 10

// ReadBody adds to rep what the first bytes of a body say: that it is a refusal,
// until when, and what is left. It reads no more than 8 KiB. A body that is cut off is
// read as far as it goes.
func (r *Reader) ReadBody(status int, h http.Header, peek []byte, rep *Report) {
	defer rep.resolve(status)
	peek = peek[:min(len(peek), maxPeek)]
	if r.Body != nil {
		r.Body(status, h, peek, rep)
		return
	}
	b := bodyReader{status: status}
	if t := bytes.TrimSpace(peek); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
		d := json.NewDecoder(bytes.NewReader(t))
		d.UseNumber()
		b.json = d
		b.value("", 0, false)
	} else if status >= 400 {
		b.text(string(peek))
	}
	b.tell(rep)
}

// A bodyReader walks through a body and notes what is about limits.
type bodyReader struct {
	json   *json.Decoder
	status int

	refused, global bool
	secondary       bool // the words of GitHub's secondary limit
	hasDelay        bool
	delay           time.Duration
	cost            costState
}

// costState is the throttleStatus of Shopify's GraphQL.
type costState struct{ maximum, left, rate number }

// secondaryWait is how long GitHub documents to wait after its secondary limit has refused
// a request without a header that says until when.
const secondaryWait = time.Minute

// maxDepth is how deep the walk goes into JSON.
const maxDepth = 12

// value reads one JSON value, the one of key. inError says that it is inside of
// what reports an error. It returns false at the end or at a mistake.
func (b *bodyReader) value(key string, depth int, inError bool) bool {
	t, err := b.json.Token()
	if err != nil || depth > maxDepth {
		return false
	}
	switch t := t.(type) {
	case json.Delim:
		return b.inside(t == '{', key, depth, inError)
	case string:
		b.string(key, t, inError || depth == 1 && key == "error")
	case json.Number:
		n, _ := parseNumber(string(t))
		b.number(key, n)
	case bool:
		b.global = b.global || t && key == "global"
	}
	return true
}

// inside reads the members of an object or an array.
func (b *bodyReader) inside(object bool, key string, depth int, inError bool) bool {
	inError = inError || key == "errors" || key == "error"
	for b.json.More() {
		if object {
			t, err := b.json.Token()
			name, ok := t.(string)
			if err != nil || !ok {
				return false
			}
			key = name
		}
		if !b.value(key, depth+1, inError) {
			return false
		}
	}
	_, err := b.json.Token()
	return err == nil
}

// string reads a string. In a success only the code of an error counts, since
// anything else may be somebody's data.
func (b *bodyReader) string(key, s string, inError bool) {
	switch key {
	case "type", "code", "error", "reason", "status", "errorCode", "error_code", "__type", "Code":
		if inError || b.status >= 400 {
			b.refused = b.refused || isRefusal(s)
		}
	case "message":
		if b.status >= 400 {
			b.text(s)
		} else if inError {
			b.refused = b.refused || s == "Throttled"
		}
	case "retryDelay":
		if d, ok := parseDuration(s); ok {
			b.wait(d)
		}
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

// text looks into prose and XML for what says that this is a refusal. A client error
// other than 403 may speak of rate limits and be about something else.
func (b *bodyReader) text(s string) {
	if b.status < 500 && b.status != http.StatusForbidden && b.status != http.StatusTooManyRequests {
		return
	}
	s = strings.ToLower(s)
	b.secondary = b.secondary || b.status < 500 && (strings.Contains(s, "secondary rate limit") || strings.Contains(s, "abuse detection"))
	for _, phrase := range refusalPhrases {
		if strings.Contains(s, phrase) {
			b.refused = true
			return
		}
	}
}

// refusalPhrases are in lower case. Only bodies of errors are searched for them.
var refusalPhrases = []string{
	"rate limit exceeded", "secondary rate limit", "exceeded the rate limit", "exceeded your rate limit",
	"exceeded rate limit", "rate limit reached", "rate limited", "rate-limited", "ratelimited", "rate_limit", "ratelimitexceeded",
	"abuse detection", "too many requests", "request_limit_exceeded", "slowdown", "slow down", "throttl",
}

// isRefusal reports whether an error code says that a limit was hit: its letters
// are those of one of these.
func isRefusal(code string) bool {
	if len(code) > maxName {
		return false
	}
	var letters []byte
	for i := range len(code) {
		if c := code[i]; isLetter(c) {
			letters = append(letters, c|0x20)
		}
	}
	switch string(letters) {
	case "ratelimited", "ratelimit", "ratelimitexceeded", "ratelimitreached", "userratelimitexceeded", "dailylimitexceeded",
		"throttled", "throttling", "throttlingexception", "requestthrottled", "requestthrottledexception",
		"toomanyrequests", "toomanyrequestsexception", "requestlimitexceeded", "slowdown", "resourceexhausted",
		"quotaexceeded", "provisionedthroughputexceededexception", "ratelimiterror", "activitylimitreached",
		"comamazonawsdynamodbvprovisionedthroughputexceededexception":
		return true
	}
	return false
}

// tell adds what was found to rep.
func (b *bodyReader) tell(rep *Report) {
	rep.Throttled = rep.Throttled || b.refused
	rep.marked = rep.marked || b.refused
	if b.secondary {
		rep.documented = secondaryWait
	}
	if !rep.Throttled {
		b.tellCost(rep)
		return
	}
	rep.Global = rep.Global || b.global
	if b.hasDelay && (!rep.HasRetryAfter || b.delay > rep.RetryAfter) {
		rep.RetryAfter, rep.HasRetryAfter, rep.RetryForm = b.delay, true, DeltaSeconds
	}
	b.tellCost(rep)
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
