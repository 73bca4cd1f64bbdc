package quota

import (
	"net/http"
	"strings"
)

// text searches prose and XML for phrases that make a 429 or 503 a refusal in its own words.
// GitHub's names for its secondary limit count on 403, too.
func (b *bodyReader) text(s string) {
	switch b.status {
	case http.StatusForbidden, http.StatusTooManyRequests, http.StatusServiceUnavailable:
	default:
		return
	}
	s = strings.ToLower(s)
	if b.status != http.StatusServiceUnavailable && (strings.Contains(s, "secondary rate limit") || strings.Contains(s, "abuse detection mechanism")) {
		b.refused, b.secondary = true, true
		return
	}
	if b.status == http.StatusForbidden {
		return
	}
	for _, phrase := range refusalPhrases {
		if strings.Contains(s, phrase) {
			b.refused = true
			return
		}
	}
}

// refusalPhrases are in lower case.
var refusalPhrases = []string{
	"rate limit exceeded", "exceeded the rate limit", "exceeded your rate limit",
	"exceeded rate limit", "rate limit reached", "rate limited", "rate-limited", "ratelimited", "rate_limit", "ratelimitexceeded",
	"abuse detection", "too many requests", "request_limit_exceeded", "slowdown", "slow down", "throttl",
}

// vendorText searches XML and prose for one of the codes of the host.
func (b *bodyReader) vendorText(s string) {
	if b.vendor == nil || len(b.vendor.Codes) == 0 {
		return
	}
	isCode := func(c rune) bool { return c < 0x80 && (isLetter(byte(c)) || isDigit(byte(c)) || c == '_') }
	for word := range strings.FieldsFuncSeq(s, func(c rune) bool { return !isCode(c) }) {
		if b.vendor.hasCode(word) {
			b.refused = true
			return
		}
	}
}

// hasCode reports whether code is one of those that v refuses with. What stands before a #
// does not count: com.amazonaws.dynamodb.v20120810#ThrottlingException.
func (v *Vendor) hasCode(code string) bool {
	if v == nil {
		return false
	}
	code = code[strings.LastIndexByte(code, '#')+1:]
	for _, c := range v.Codes {
		if c == code {
			return true
		}
	}
	return false
}

// problemTypes is what the URIs of problem types begin with (RFC 9457).
const problemTypes = "https://iana.org/assignments/http-problem-types#"

// isRefusal reports whether an error code states that a limit refused the request: it is a
// problem type of draft-ietf-httpapi-ratelimit-headers, or its letters are those of a known code.
func isRefusal(code string) bool {
	if kind, ok := strings.CutPrefix(code, problemTypes); ok {
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

// isPermanent reports whether an error code states a refusal that waiting does not cure: the
// account has no money left, or is suspended.
func isPermanent(code string) bool {
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
	if len(code) > maxName {
		return ""
	}
	letters := make([]byte, 0, maxName)
	for i := range len(code) {
		if c := code[i]; isLetter(c) {
			letters = append(letters, c|0x20)
		}
	}
	return string(letters)
}
