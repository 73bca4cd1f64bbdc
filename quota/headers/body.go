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
// The ErrorCodes of the host's Provider make any error a rejection. The problem types of the
// IETF draft, the text of GitHub's secondary limit and that of a quota of Azure API Management
// make a 403 one, and the problem types also a 503. Other codes and phrases do so only in a 200,
// as the codes of errors: a 403 or 503 may mention limits without being a rejection, and to a 429
// they add nothing. The time in a sentence such as "Try again in 4 seconds." counts if a rejection
// states no other.
func (r *Reader) ReadBody(status int, h http.Header, peek []byte, rep *Report) {
	defer rep.resolve(status)
	peek = peek[:min(len(peek), maxPeek)]
	if r.Body != nil {
		r.Body(status, h, peek, rep)
		return
	}
	b := bodyParser{status: status, provider: rep.provider, clock: clock{header: h}}
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

	clock clock

	throttled, permanent, global bool
	documented                   bool          // one of the ErrorCodes of provider
	overloaded                   bool          // a code of a server that did not process the request
	locked                       bool          // a code of an object that another request has locked
	documentedWait               time.Duration // wait that the API documents for this rejection; 0: none
	hasDelay                     bool
	delay                        time.Duration // in a member
	textDelay                    time.Duration // in a sentence; 0: none
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

const (
	// githubSecondaryWait is the delay that GitHub documents for a rejection by its secondary
	// limit without a header that states a delay.
	githubSecondaryWait = time.Minute

	// documentedDelay is the base delay after a throttling error in the SDKs of AWS.
	documentedDelay = time.Second
)

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
		m.inError = m.inError || depth == 1 && (m.key == "error" || m.key == "error_code")
		b.string(m, depth, t)
	case json.Number:
		n, _ := parseDecimal(string(t))
		b.number(m.key, n)
		if code := string(t); b.provider.hasErrorCode(code) && b.isCode(m, depth, code) {
			b.throttled, b.documented = true, true
		}
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
	case "type", "code", "error", "reason", "status", "errorCode", "error_code", "errorcode", "error_name", "retCode", "__type", "Code":
		return true
	}
	return false
}

// isMessageKey reports whether key is the name of a member that describes an error in prose.
func isMessageKey(key string) bool {
	switch key {
	case "message", "Message", "detail", "title", "error_message", "errorMessage", "error_description", "DeveloperErrorMessage":
		return true
	}
	return false
}

// string reads a string. In a success only the code of an error counts, because other
// strings may be data. Of an error the messages of the first three levels are read: deeper
// ones describe details.
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
	case m.key == "quotaId" && b.status == http.StatusTooManyRequests && strings.Contains(s, "PerDay"):
		b.addDelay(b.delayUntil(nextPacificMidnight)) // Google's quotas per day
	case m.key == "policyName" && b.status == http.StatusTooManyRequests && s == "DAILY":
		// HubSpot's quota per day ends at midnight in the time zone of the account, which is on the hour in most zones.
		b.documentedWait = b.delayUntil(func(now time.Time) time.Time { return now.Truncate(time.Hour).Add(time.Hour) })
	case m.key == "message" && m.inError && b.status < 400:
		b.throttled = b.throttled || s == "Throttled"
	case isMessageKey(m.key) && (b.status >= 400 || m.key == "error_message"):
		if m.atCodePath && depth <= 3 {
			b.scanText(s)
		}
	case b.isCode(m, depth, s):
		b.addCode(s)
		if m.key == "error" && b.status >= 400 { // of some APIs it is a sentence
			b.scanText(s)
		}
	}
}

// isCode reports whether s is an error code. In a success it is one in a member that holds errors, or one that the provider of the host
// documents.
func (b *bodyParser) isCode(m jsonContext, depth int, s string) bool {
	if !isCodeKey(m.key) || !m.atCodePath {
		return false
	}
	return m.inError || b.status >= 400 || depth == 1 && b.provider != nil && b.provider.InspectSuccessBody && b.provider.hasErrorCode(s)
}

// addCode reads an error code.
func (b *bodyParser) addCode(s string) {
	if b.provider.hasErrorCode(s) {
		b.throttled, b.documented = true, true
		switch s {
		case "dailyLimitExceeded": // Google
			b.addDelay(b.delayUntil(nextPacificMidnight))
		case "DAILY_LIMIT_EXCEEDED": // monday
			b.addDelay(b.delayUntil(nextMidnight))
		}
		return
	}
	switch b.status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable, 529:
		letters := lettersOf(s)
		b.throttled = b.throttled || isProblemOfLimit(s)
		b.permanent = b.permanent || isPermanentCode(letters)
		b.overloaded = b.overloaded || b.status >= 500 && isOverloadCode(letters)
		b.locked = b.locked || letters == "locktimeout"
	default:
		b.throttled = b.throttled || b.status < 400 && isThrottleCode(lettersOf(s))
	}
}

func (b *bodyParser) number(key string, n decimal) {
	if n.negative {
		return
	}
	switch key {
	case "retry_after", "retryAfter", "retry_after_seconds", "retryAfterSeconds", "retry_in_seconds", "retryInSeconds", "retryAfterSec", "backoff_seconds", "resets_in_seconds":
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

// delayUntil returns the delay from the time of the response until the instant that next returns for it.
func (b *bodyParser) delayUntil(next func(time.Time) time.Time) time.Duration {
	b.clock.received = time.Now() // for a response without a Date
	b.clock.sent = b.clock.received
	now := b.clock.serverTime()
	return next(now).Sub(now)
}

// addTo adds the results to rep. A delay in a 503 is its Retry-After.
func (b *bodyParser) addTo(rep *Report) {
	rep.Violated = append(rep.Violated, b.violated...)
	rep.NotProcessed = rep.NotProcessed || b.overloaded
	rep.Throttled = (rep.Throttled || b.throttled) && !b.permanent && !b.locked
	rep.Permanent = rep.Permanent || b.permanent
	b.addCost(rep)
	if !rep.Throttled && (b.status != http.StatusServiceUnavailable || b.permanent) {
		return
	}
	rep.Global = rep.Global || b.global
	if b.documentedWait > 0 {
		rep.documentedWait = b.documentedWait
	}
	if b.documented {
		rep.MinDelay = documentedDelay
	}
	switch {
	case b.hasDelay && (!rep.HasRetryAfter || b.delay > rep.RetryAfter):
		rep.RetryAfter, rep.HasRetryAfter, rep.RetryFormat = b.delay, true, FormatDeltaSeconds
	case b.textDelay > 0 && rep.Throttled && !b.hasDelay && !rep.HasRetryAfter && !rep.anyExhausted(true):
		rep.RetryAfter, rep.HasRetryAfter, rep.RetryFormat = b.textDelay, true, FormatDuration
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

// scanText searches prose and XML for the texts of GitHub's secondary limit, for that of a quota of
// Azure API Management, which comes with a 403, and for the time after which to retry.
func (b *bodyParser) scanText(s string) {
	s = strings.ToLower(s)
	if b.status == http.StatusForbidden || b.status == http.StatusTooManyRequests {
		if strings.Contains(s, "secondary rate limit") || strings.Contains(s, "abuse detection mechanism") {
			b.throttled, b.documentedWait = true, githubSecondaryWait
		}
	}
	d, ok := waitInText(s)
	if !ok && strings.Contains(s, "resume") && strings.Contains(s, "at gmt 00:00") { // Zoom's quotas per day
		d = b.delayUntil(nextMidnight)
	}
	b.textDelay = max(b.textDelay, d)
	if ok && b.status == http.StatusForbidden && strings.Contains(s, "quota will be replenished in ") {
		b.throttled = true
	}
}

// waitPhrases are the words before the time after which to retry, in lower case.
var waitPhrases = [...]string{
	"try again in ", "try again after ", "retry in ", "retry after ", "retry after: ", "available in ",
	"replenished in ", "reset in ", "resets in ", "wait ",
}

// waitInText returns the time after one of waitPhrases in s, which is in lower case.
func waitInText(s string) (d time.Duration, ok bool) {
	for _, phrase := range waitPhrases {
		for rest := s; !ok; {
			var found bool
			if _, rest, found = strings.Cut(rest, phrase); !found {
				break
			}
			d, _, ok = leadingDuration(rest)
		}
	}
	return d, ok
}

// scanProviderCodes searches XML and prose for one of the error codes of the host. Numbers in prose may be any.
func (b *bodyParser) scanProviderCodes(s string) {
	if b.provider == nil || len(b.provider.ErrorCodes) == 0 {
		return
	}
	isCode := func(c rune) bool { return c < 0x80 && (isLetter(byte(c)) || isDigit(byte(c)) || c == '_') }
	for word := range strings.FieldsFuncSeq(s, func(c rune) bool { return !isCode(c) }) {
		if !isDigit(word[0]) && b.provider.hasErrorCode(word) {
			b.throttled, b.documented = true, true
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

// isProblemOfLimit reports whether an error code is a problem type of
// draft-ietf-httpapi-ratelimit-headers.
func isProblemOfLimit(code string) bool {
	kind, ok := strings.CutPrefix(code, problemTypePrefix)
	return ok && (kind == "quota-exceeded" || kind == "temporary-reduced-capacity" || kind == "abnormal-usage-detected")
}

// isThrottleCode reports whether an error code in a 200, of which these are the letters, states that a
// limit rejected the request.
func isThrottleCode(letters string) bool {
	switch letters {
	case "ratelimited", "ratelimit", "ratelimitexceeded", "ratelimitreached", "userratelimitexceeded", "dailylimitexceeded",
		"throttled", "throttling", "throttlingexception", "requestthrottled", "requestthrottledexception",
		"toomanyrequests", "toomanyrequestsexception", "requestlimitexceeded", "slowdown", "resourceexhausted",
		"overloadederror", "overloaded", "serveroverloaded", "ratelimiterror", "activitylimitreached":
		return true
	}
	return false
}

// isOverloadCode reports whether an error code, of which these are the letters, states that the server
// is overloaded and did not process the request.
func isOverloadCode(letters string) bool {
	return letters == "serverisoverloaded" || letters == "overloadederror" || letters == "serveroverloaded" || letters == "overloaded"
}

// isPermanentCode reports whether an error code, of which these are the letters, states a rejection that
// waiting does not resolve: the account has no money left, has spent what it may, or is suspended.
func isPermanentCode(letters string) bool {
	switch letters {
	case "insufficientquota", "insufficientbalance", "insufficientcredits", "insufficientfunds", "creditbalancetoolow",
		"creditbalanceexhausted", "billinghardlimitreached", "billingnotactive", "billingnotenabled", "billingdisabled", "billingerror", "paymentrequired",
		"enforcedspendlimitreached", "spendlimitreached", "spendlimitexceeded", "organizationspendlimitexceeded", "projectspendlimitexceeded",
		"organizationusagelimitexceeded",
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
