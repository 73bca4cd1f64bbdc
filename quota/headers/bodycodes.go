package headers

import (
	"net/http"
	"strings"
)

// scanText searches prose and XML for phrases that make a 429 or 503 a refusal in its own words.
// GitHub's names for its secondary limit count on 403, too.
func (b *bodyParser) scanText(s string) {
	switch b.status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		return
	}
	s = strings.ToLower(s)
	if b.status != http.StatusServiceUnavailable && (strings.Contains(s, "secondary rate limit") || strings.Contains(s, "abuse detection mechanism")) {
		b.throttled, b.githubSecondary = true, true
		return
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

// throttlePhrases are in lower case.
var throttlePhrases = []string{
	"rate limit exceeded", "exceeded the rate limit", "exceeded your rate limit",
	"exceeded rate limit", "rate limit reached", "rate limited", "rate-limited", "ratelimited", "rate_limit", "ratelimitexceeded",
	"abuse detection", "too many requests", "request_limit_exceeded", "slowdown", "slow down", "throttl",
}

// scanProviderCodes searches XML and prose for one of the codes of the host.
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

// hasErrorCode reports whether code is one of those that v refuses with. What stands before a #
// does not count: com.amazonaws.dynamodb.v20120810#ThrottlingException.
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

// problemTypePrefix is what the URIs of problem types begin with (RFC 9457).
const problemTypePrefix = "https://iana.org/assignments/http-problem-types#"

// isThrottleCode reports whether an error code states that a limit refused the request: it is a
// problem type of draft-ietf-httpapi-ratelimit-headers, or its letters are those of a known code.
func isThrottleCode(code string) bool {
	if kind, ok := strings.CutPrefix(code, problemTypePrefix); ok {
		return kind == "quota-exceeded" || kind == "temporary-reduced-capacity" || kind == "abnormal-usage-detected"
	}
	switch lettersOf(code) {
	case "ratelimited", "ratelimit", "ratelimitexceeded", "ratelimitreached", "userratelimitexceeded", "dailylimitexceeded",
		"throttled", "throttling", "throttlingexception", "requestthrottled", "requestthrottledexception",
		"toomanyrequests", "toomanyrequestsexception", "requestlimitexceeded", "slowdown", "resourceexhausted",
		"quotaexceeded", "provisionedthroughputexceededexception", "ratelimiterror", "activitylimitreached",
		"comamazonawsdynamodbvprovisionedthroughputexceededexception":
		return true
	}
	return false
}

// isPermanentCode reports whether an error code states a refusal that waiting does not cure: the
// account has no money left, or is suspended.
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

// lettersOf returns the letters of a code in lower case; "" for what is too long to be one.
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
