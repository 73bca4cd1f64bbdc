package headers

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// Some APIs state a rejection only in the body: GraphQL and Slack in a 200, GitHub's
// secondary limit in a 403, DynamoDB in a 400. Telegram and Google state the delay in the
// body.

// maxPeek is the number of bytes of a body that are read.
const maxPeek = 8 << 10

// ReadBody adds to rep what the first bytes of a body state: that the response is a
// rejection, until when, and what is left. rep is the result of Parse for the same
// response. At most 8 KiB are read, and a truncated body is read as far as possible.
//
// Error codes in known members make a 403, 429 or 503 a rejection. Phrases do so only on
// 429 and 503, because the text of other errors may mention rate limits without being a
// rejection; those of GitHub's secondary limit also do on 403. On any other status only the
// ErrorCodes of the host's Provider count, and in a 200 only the codes of errors.
func (r *Reader) ReadBody(status int, h http.Header, peek []byte, rep *Report) {
	defer rep.resolve(status)
	peek = peek[:min(len(peek), maxPeek)]
	if r.Body != nil {
		r.Body(status, h, peek, rep)
		return
	}
	b := bodyParser{status: status, provider: rep.provider}
	if t := bytes.TrimSpace(peek); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
		d := json.NewDecoder(bytes.NewReader(t))
		d.UseNumber()
		b.json = d
		b.value(jsonContext{atCodePath: true}, 0)
	} else if status >= 400 {
		b.scanText(string(peek))
		b.scanProviderCodes(string(peek))
	}
	b.addTo(rep)
}

// A bodyParser reads a body and collects what is about limits.
type bodyParser struct {
	json     *json.Decoder
	status   int
	provider *Provider // properties of the host; nil: none

	throttled, permanent, global bool
	githubSecondary              bool // the text of GitHub's secondary limit
	hasDelay                     bool
	delay                        time.Duration
	cost                         shopifyCost
	violated                     []string
}

// shopifyCost is the throttleStatus of Shopify's GraphQL API.
type shopifyCost struct{ maximum, available, rate decimal }

// A jsonContext is the position of a JSON value.
type jsonContext struct {
	key        string // of the innermost object
	inError    bool   // inside a member that reports an error
	atCodePath bool   // at the top level, or inside objects in which APIs put error codes
}

// githubSecondaryWait is the delay that GitHub documents for a rejection by its secondary
// limit without a header that states a delay.
const githubSecondaryWait = time.Minute

// maxDepth is the maximum number of nested levels of JSON that are read.
const maxDepth = 12

// value reads one JSON value at position m. It returns false at the end of the body or at a
// syntax error.
func (b *bodyParser) value(m jsonContext, depth int) bool {
	t, err := b.json.Token()
	if err != nil || depth > maxDepth {
		return false
	}
	switch t := t.(type) {
	case json.Delim:
		return b.members(t == '{', m, depth)
	case string:
		m.inError = m.inError || depth == 1 && m.key == "error"
		b.string(m, depth, t)
	case json.Number:
		n, _ := parseDecimal(string(t))
		b.number(m.key, n)
	case bool:
		b.global = b.global || t && m.key == "global"
	}
	return true
}

// members reads the members of an object or an array.
func (b *bodyParser) members(object bool, m jsonContext, depth int) bool {
	m.inError = m.inError || m.key == "errors" || m.key == "error"
	m.atCodePath = m.atCodePath && (depth == 0 || mayHoldCode(m.key))
	for b.json.More() {
		if object {
			t, _ := b.json.Token() // nil after an error
			name, ok := t.(string)
			if !ok {
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

// mayHoldCode reports whether APIs put error codes into a member named key. The key "" is
// that of an array at the top level.
func mayHoldCode(key string) bool {
	switch key {
	case "", "error", "errors", "Error", "Errors", "extensions", "details", "detail", "fault":
		return true
	}
	return false
}

// isCodeKey reports whether key is the name of a member that is an error code.
func isCodeKey(key string) bool {
	switch key {
	case "type", "code", "error", "reason", "status", "errorCode", "error_code", "errorcode", "__type", "Code":
		return true
	}
	return false
}

// string reads a string. In a success only the code of an error counts, because other
// strings may be data. Of an error the messages of the first three levels are searched for
// phrases: deeper ones describe details.
func (b *bodyParser) string(m jsonContext, depth int, s string) {
	switch {
	case m.key == "retryDelay":
		if d, ok := parseDuration(s); ok {
			b.addDelay(d)
		}
	case m.key == "violated-policies" && b.status >= 400:
		if len(b.violated) < maxEntries {
			b.violated = append(b.violated, s[:min(len(s), maxNameLen)])
		}
	case m.key == "message" && b.status >= 400:
		if m.atCodePath && depth <= 3 {
			b.scanText(s)
		}
	case m.key == "message" && m.inError:
		b.throttled = b.throttled || s == "Throttled"
	case isCodeKey(m.key) && m.atCodePath && (m.inError || b.status >= 400):
		b.addCode(s)
	}
}

// addCode reads an error code.
func (b *bodyParser) addCode(s string) {
	if b.provider.hasErrorCode(s) {
		b.throttled = true
		return
	}
	switch b.status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, 529:
		b.permanent = b.permanent || isPermanentCode(s)
		b.throttled = b.throttled || isThrottleCode(s)
	default:
		b.throttled = b.throttled || b.status < 400 && isThrottleCode(s)
	}
}

func (b *bodyParser) number(key string, n decimal) {
	if n.negative {
		return
	}
	switch key {
	case "retry_after", "retryAfter", "retry_after_seconds", "retryAfterSeconds":
		b.addDelay(n.duration(time.Second))
	case "retry_after_ms", "retryAfterMs":
		b.addDelay(n.duration(time.Millisecond))
	case "maximumAvailable":
		b.cost.maximum = n
	case "currentlyAvailable":
		b.cost.available = n
	case "restoreRate":
		b.cost.rate = n
	}
}

func (b *bodyParser) addDelay(d time.Duration) {
	b.delay, b.hasDelay = max(b.delay, d), true
}

// addTo adds the results to rep.
func (b *bodyParser) addTo(rep *Report) {
	rep.Violated = append(rep.Violated, b.violated...)
	rep.Throttled = rep.Throttled || b.throttled
	rep.explicit = rep.explicit || b.throttled
	if b.githubSecondary {
		rep.documentedWait = githubSecondaryWait
	}
	if b.permanent {
		rep.Permanent, rep.Throttled = true, false
	}
	b.addCost(rep)
	if !rep.Throttled {
		return
	}
	rep.Global = rep.Global || b.global
	if b.hasDelay && (!rep.HasRetryAfter || b.delay > rep.RetryAfter) {
		rep.RetryAfter, rep.HasRetryAfter, rep.RetryFormat = b.delay, true, FormatDeltaSeconds
	}
}

func (b *bodyParser) addCost(rep *Report) {
	if b.cost.maximum.whole == 0 {
		return
	}
	rep.Limits = append(rep.Limits, Limit{
		Name: "cost", Unit: "points", Limit: b.cost.maximum.whole, Remaining: b.cost.available.whole,
		HasLimit: true, HasRemaining: true, Rate: b.cost.rate.float(),
	})
}

// scanText searches prose and XML for phrases that make a 429 or 503 an explicit rejection.
// The names of GitHub's secondary limit count on 403 as well.
func (b *bodyParser) scanText(s string) {
	switch b.status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		return
	}
	s = strings.ToLower(s)
	if b.status != http.StatusServiceUnavailable && (strings.Contains(s, "secondary rate limit") || strings.Contains(s, "abuse detection mechanism")) {
		b.throttled, b.githubSecondary = true, true
	}
	if b.status == http.StatusForbidden {
		return
	}
	for _, phrase := range throttlePhrases {
		if strings.Contains(s, phrase) {
			b.throttled = true
			return
		}
	}
}

// throttlePhrases are phrases of rejections, in lower case.
var throttlePhrases = []string{
	"rate limit exceeded", "exceeded the rate limit", "exceeded your rate limit",
	"exceeded rate limit", "rate limit reached", "rate limited", "rate-limited", "ratelimited", "rate_limit", "ratelimitexceeded",
	"abuse detection", "too many requests", "request_limit_exceeded", "slowdown", "slow down", "throttl",
}

// scanProviderCodes searches XML and prose for one of the error codes of the host.
func (b *bodyParser) scanProviderCodes(s string) {
	if b.provider == nil || len(b.provider.ErrorCodes) == 0 {
		return
	}
	isCode := func(c rune) bool { return c < 0x80 && (isLetter(byte(c)) || isDigit(byte(c)) || c == '_') }
	for word := range strings.FieldsFuncSeq(s, func(c rune) bool { return !isCode(c) }) {
		if b.provider.hasErrorCode(word) {
			b.throttled = true
			return
		}
	}
}

// hasErrorCode reports whether code is one of the ErrorCodes of p. The part before a # is
// ignored: com.amazonaws.dynamodb.v20120810#ThrottlingException.
func (p *Provider) hasErrorCode(code string) bool {
	if p == nil {
		return false
	}
	code = code[strings.LastIndexByte(code, '#')+1:]
	for _, c := range p.ErrorCodes {
		if c == code {
			return true
		}
	}
	return false
}

// problemTypePrefix is the common prefix of the URIs of problem types (RFC 9457).
const problemTypePrefix = "https://iana.org/assignments/http-problem-types#"

// isThrottleCode reports whether an error code states that a limit rejected the request: it
// is a problem type of draft-ietf-httpapi-ratelimit-headers, or its letters are those of a
// known code.
func isThrottleCode(code string) bool {
	if kind, ok := strings.CutPrefix(code, problemTypePrefix); ok {
		return kind == "quota-exceeded" || kind == "temporary-reduced-capacity" || kind == "abnormal-usage-detected"
	}
	switch lettersOf(code) {
	case "ratelimited", "ratelimit", "ratelimitexceeded", "ratelimitreached", "userratelimitexceeded", "dailylimitexceeded",
		"throttled", "throttling", "throttlingexception", "requestthrottled", "requestthrottledexception",
		"toomanyrequests", "toomanyrequestsexception", "requestlimitexceeded", "slowdown", "resourceexhausted",
		"overloadederror", "overloaded", "serveroverloaded", "quotaexceeded", "provisionedthroughputexceededexception", "ratelimiterror", "activitylimitreached",
		"comamazonawsdynamodbvprovisionedthroughputexceededexception":
		return true
	}
	return false
}

// isPermanentCode reports whether an error code states a rejection that waiting does not
// resolve: the account has no money left, or is suspended.
func isPermanentCode(code string) bool {
	switch lettersOf(code) {
	case "insufficientquota", "insufficientbalance", "insufficientcredits", "insufficientfunds", "creditbalancetoolow",
		"billinghardlimitreached", "billingnotactive", "billingnotenabled", "billingdisabled", "billingerror", "paymentrequired",
		"accountsuspended", "accountdeactivated", "accountdisabled", "accountclosed", "accessterminated",
		"organizationsuspended", "organizationdeactivated", "organizationdisabled", "projectsuspended", "consumersuspended",
		"usersuspended", "subscriptionsuspended":
		return true
	}
	return false
}

// lettersOf returns the letters of a code in lower case, or "" if the text is too long to
// be a code.
func lettersOf(code string) string {
	if len(code) > maxNameLen {
		return ""
	}
	letters := make([]byte, 0, maxNameLen)
	for i := range len(code) {
		if c := code[i]; isLetter(c) {
			letters = append(letters, c|0x20)
		}
	}
	return string(letters)
}
