package headers

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// readBody returns the report of a response with a header and a body.
func readBody(r *Reader, host string, status int, header, body string) Report {
	h := parseHeader(header)
	rep := r.Parse(host, status, h, time.Unix(1700000000, 0))
	r.ReadBody(status, h, []byte(body), &rep)
	return rep
}

// TestReadBody_boundsWhatItReads checks the last byte and the deepest value that are read, and
// that what follows them is not.
func TestReadBody_boundsWhatItReads(t *testing.T) {
	nested := func(levels int, s string) string {
		return strings.Repeat(`{"error":`, levels) + s + strings.Repeat("}", levels)
	}
	long := func(size int, format string) string {
		return fmt.Sprintf(format, strings.Repeat("x", size-len(format)+len("%s")))
	}
	for _, c := range []struct {
		name string
		body string
		want bool // the code is read
	}{
		{"a code at the end of 8 KiB", long(maxPeek, `{"pad":"%s","code":"account_suspended"`) + "}", true},
		{"a code that ends after it", long(maxPeek+1, `{"pad":"%s","code":"account_suspended"`) + "}", false},
		{"a code of twelve levels", nested(11, `{"code":"account_suspended"}`), true},
		{"a code of more", nested(12, `{"code":"account_suspended"}`), false},
		{"a code of the longest length", `{"code":"account_suspended` + strings.Repeat("_", maxNameLen-len("account_suspended")) + `"}`, true},
		{"a longer code", `{"code":"account_suspended` + strings.Repeat("_", maxNameLen+1-len("account_suspended")) + `"}`, false},
		{"blanks before JSON", " \r\n\t{\"code\":\"account_suspended\"}", true},
		{"an array", `[{"code":"account_suspended"}]`, true},
		{"an array of arrays", `[[{"code":"account_suspended"}]]`, true},
		{"a string alone", `"account_suspended"`, false},
		{"prose that begins like JSON", `[account_suspended`, false},
		{"nothing", "", false},
		{"blanks", " \n", false},
	} {
		require.Equal(t, c.want, readBody(new(Reader), "", 403, "", c.body).Permanent, c.name)
	}
	require.Equal(t, StatedWait, readBody(new(Reader), "", 429, "", long(maxPeek, `%s secondary rate limit`)).Stated)
	require.Equal(t, NotStated, readBody(new(Reader), "", 429, "", long(maxPeek+1, `%s secondary rate limit`)).Stated, "the last byte is not read")
}

// TestReadBody_storesABoundedNumberOfPolicies checks the length of Violated and of the names
// in it.
func TestReadBody_storesABoundedNumberOfPolicies(t *testing.T) {
	name := strings.Repeat("n", maxNameLen)
	body := `{"violated-policies":["` + name + `","` + name + `+"` + strings.Repeat(`,"a"`, maxEntries) + `]}`
	rep := readBody(new(Reader), "", 429, "", body)
	require.Len(t, rep.Violated, maxEntries)
	require.Equal(t, []string{name, name, "a"}, rep.Violated[:3])
	require.Equal(t, "a", rep.Violated[maxEntries-1])
	for status, want := range map[int]int{399: 0, 400: 1, 500: 1} {
		require.Len(t, readBody(new(Reader), "", status, "", `{"violated-policies":["a"]}`).Violated, want, status)
	}
}

// TestReadBody_usesTheLongestDelay checks the members that state a delay, and the delay of the
// header beside them.
func TestReadBody_usesTheLongestDelay(t *testing.T) {
	for _, c := range []struct {
		header, body string
		want         string
	}{
		{"", `{"retry_after":7}`, "retry 7s"},
		{"", `{"retryAfter":7}`, "retry 7s"},
		{"", `{"retry_after_seconds":7}`, "retry 7s"},
		{"", `{"retryAfterSeconds":7}`, "retry 7s"},
		{"", `{"retry_after_ms":1500}`, "retry 1.5s"},
		{"", `{"retryAfterMs":1500}`, "retry 1.5s"},
		{"", `{"retryDelay":"1.5s"}`, "retry 1.5s"},
		{"", `{"retryDelay":"soon"}`, ""},
		{"", `{"retryDelay":"soon","retry_after":0}`, "retry 0s"},
		{"", `{"retry_after":-7}`, ""},
		{"", `{"retry_after":0}`, "retry 0s"},
		{"", `{"retry_after":"7"}`, ""},
		{"", `{"after":7}`, ""},
		{"", `{"retry_after":7,"retry_after_ms":6000}`, "retry 7s"},
		{"", `{"retry_after_ms":6000,"retry_after":7}`, "retry 7s"},
		{"", `{"items":[{"retry_after":7},{"retry_after":9},{"retry_after":8}]}`, "retry 9s"},
		{"Retry-After: 9", `{"retry_after":7}`, "retry 9s"},
		{"Retry-After: 9", `{"retry_after":9.5}`, "retry 9.5s"},
		{"Retry-After: 0", `{"retry_after":0}`, "retry 0s"},
	} {
		rep := readBody(new(Reader), "", 429, c.header, c.body)
		require.Equal(t, strings.TrimPrefix(c.want+", rejected", ", "), formatReport(rep), "%s %s", c.header, c.body)
		if c.want != "" {
			require.Equal(t, FormatDeltaSeconds, rep.RetryFormat, c.body)
		}
	}
	require.Equal(t, FormatDate, readBody(new(Reader), "", 429, dateLine+"Retry-After: Tue, 14 Nov 2023 22:13:29 GMT", `{"retry_after":9}`).RetryFormat, "equally long")
}

// TestReadBody_globalOnlyInRejections checks that the member global counts only if it is true,
// and only in a rejection.
func TestReadBody_globalOnlyInRejections(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   bool
	}{
		{429, `{"global":true}`, true}, {429, `{"global":false}`, false}, {429, `{"other":true}`, false},
		{429, `{"global":true,"other":false,"more":true}`, true}, {429, `{"global":"true"}`, false}, {403, `{"global":true}`, false},
		{403, `{"global":true,"type":"https://iana.org/assignments/http-problem-types#quota-exceeded"}`, true},
		{403, `{"global":true,"code":"rate_limited"}`, false}, // a code that no provider documents
	} {
		require.Equal(t, c.want, readBody(new(Reader), "", c.status, "", c.body).Global, "%d %s", c.status, c.body)
	}
}

// TestReadBody_phrasesStateNothing checks that a sentence without a time adds nothing to a 429, and does
// not make another response a rejection, except the text of GitHub's secondary limit.
func TestReadBody_phrasesStateNothing(t *testing.T) {
	const secondary = "You hit the Abuse Detection Mechanism"
	forms := []string{"%s", `{"message":"%s"}`, `{"error":{"message":"%s"}}`, `{"errors":[{"message":"%s"}]}`, `[{"message":"%s"}]`}
	for _, status := range []int{200, 400, 402, 403, 404, 428, 429, 430, 500, 503, 504} {
		stated, wait := NotStated, time.Duration(0) // of secondary
		if status == 403 || status == 429 {
			stated, wait = StatedWait, time.Minute
		}
		for _, form := range forms {
			for _, phrase := range []string{"Too Many Requests", "Rate limit exceeded", "SlowDown", "You are being throttled", "Please try again later", "retry after 30"} {
				rep := readBody(new(Reader), "", status, "", fmt.Sprintf(form, phrase))
				require.Equal(t, NotStated, rep.Stated, "%d %s", status, phrase)
				require.Equal(t, status == 429, rep.Throttled, "%d %s", status, phrase)
			}
			rep := readBody(new(Reader), "", status, "", fmt.Sprintf(form, secondary))
			require.Equal(t, stated, rep.Stated, "%d %s", status, form)
			require.Equal(t, wait, rep.Wait, "%d %s", status, form)
		}
	}
	for _, body := range []string{
		`{"data":{"message":"secondary rate limit"}}`, `{"text":"secondary rate limit"}`,
		`{"error":{"errors":[{"message":"secondary rate limit"}]}}`, // too deep for a summary of the response
	} {
		require.Equal(t, NotStated, readBody(new(Reader), "", 429, "", body).Stated, body)
	}
}

// TestReadBody_readsTheTimeInASentence checks the sentences after which a rejection may be repeated.
func TestReadBody_readsTheTimeInASentence(t *testing.T) {
	const s = time.Second
	for sentence, want := range map[string]time.Duration{
		"Rate limit is exceeded. Try again in 4 seconds.":                                        4 * s,
		"Out of call volume quota. Quota will be replenished in 22:56:30.":                       22*time.Hour + 56*time.Minute + 30*s,
		"Out of call volume quota. Quota will be replenished in 5.03:23:11.":                     5*day + 3*time.Hour + 23*time.Minute + 11*s,
		"You have hit the rate limit. Please wait 300 seconds before trying again":               300 * s,
		"You have exhausted your API Request Quota. Retry after: 21 seconds.":                    21 * s,
		"Complexity budget exhausted, query cost 30001 out of 1000000 reset in 3 seconds":        3 * s,
		"Please try again in 20s. Visit ...":                                                     20 * s,
		"Please try again in 1m30.5s":                                                            90*s + s/2,
		"try again in 6ms":                                                                       6 * time.Millisecond,
		"Please try again in 1 hour 5 minutes, or upgrade":                                       time.Hour + 5*time.Minute,
		"try again in a moment, or try again in 2 minutes":                                       2 * time.Minute,
		"more requests available in 53 seconds":                                                  53 * s,
		"You can resume these requests at GMT 00:00:00.":                                         time.Hour + 46*time.Minute + 40*s,
		"Try again in 4 seconds。":                                                                4 * s,
		"try again in 4":                                                                         0,
		"try again in 4 apples":                                                                  0,
		"try again in 25:61:70.":                                                                 25*time.Hour + 61*time.Minute + 70*s,
		"try again in 1:30":                                                                      0,
		"try again in ":                                                                          0,
		"Requests are limited to 10 in 4 seconds. The limit of 4 seconds ago was 5 per 1 minute": 0,
	} {
		for _, form := range []string{"%s", `{"message":"%s"}`, `{"error":"%s"}`, `{"error":{"message":"%s"}}`, `{"error_description":"%s"}`, `{"detail":"%s"}`} {
			rep := readBody(new(Reader), "", 429, dateLine, fmt.Sprintf(form, sentence))
			require.Equal(t, want, rep.Wait, form, sentence)
			require.Equal(t, want > 0, rep.Stated == StatedWait, form, sentence)
		}
	}
	const text = "Try again in 15 minutes." // of a window, as some servers write for each rejection
	for _, c := range []struct {
		status       int
		header, body string
		want         string
	}{
		{429, "", text, "retry 15m0s, rejected"},
		{429, "Retry-After: 5", text, "retry 5s, rejected"},
		{429, "X-RateLimit-Limit: 9\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 7", text, "0/9 in 7s, rejected"},
		{429, "X-RateLimit-Limit: 9\nX-RateLimit-Remaining: 0", text, "0/9, retry 15m0s, rejected"},
		{429, "", `{"retry_after":3,"message":"` + text + `"}`, "retry 3s, rejected"},
		{403, "", text, ""},
		{503, "", text, ""},
		{400, "", text, ""},
	} {
		require.Equal(t, c.want, formatReport(readBody(new(Reader), "", c.status, c.header, c.body)), "%d %s %s", c.status, c.header, c.body)
	}
}

// TestReadBody_codesByStatusAndPlace checks on which statuses and in which members error codes
// count. Codes of limits that no provider documents make no 403 or 503 a rejection.
func TestReadBody_codesByStatusAndPlace(t *testing.T) {
	for status, want := range map[int]bool{
		200: false, 399: false, 400: false, 402: false, 403: true, 404: false, 428: false, 429: true, 430: false,
		500: false, 502: false, 503: true, 504: false, 528: false, 529: true, 530: false,
	} {
		require.Equal(t, status == 429 || status == 529, readBody(new(Reader), "", status, "", `{"code":"rate_limited"}`).Throttled, status)
		require.Equal(t, want, readBody(new(Reader), "", status, "", `{"code":"account_suspended"}`).Permanent, status)
	}
	for body, want := range map[string]bool{
		`{"type":"account_suspended"}`: true, `{"reason":"account_suspended"}`: true, `{"status":"account_suspended"}`: true, `{"errorCode":"account_suspended"}`: true,
		`{"error_code":"account_suspended"}`: true, `{"errorcode":"account_suspended"}`: true, `{"__type":"account_suspended"}`: true, `{"Code":"account_suspended"}`: true,
		`{"error":"account_suspended"}`: true, `{"name":"account_suspended"}`: false, `{"error":{"name":"account_suspended"}}`: false,
		`{"Error":{"Code":"account_suspended"}}`: true, `{"Errors":[{"Code":"account_suspended"}]}`: true, `{"fault":{"detail":{"errorcode":"account_suspended"}}}`: true,
		`{"details":[{"reason":"account_suspended"}]}`: true, `{"extensions":{"code":"account_suspended"}}`: true, `{"data":{"code":"account_suspended"}}`: false,
		`{"data":{"error":{"code":"account_suspended"}}}`: false, `{"error":{"data":{"code":"account_suspended"}}}`: false, `{"error":{"data":1,"code":"account_suspended"}}`: true,
		`{"data":{"x":[1,{}]},"error":{"code":"account_suspended"}}`: true,
		`{"code":"Account suspended!"}`:                              true, `{"code":"not account_suspended"}`: false, `{"code":true,"type":"ACCOUNT_SUSPENDED"}`: true,
	} {
		require.Equal(t, want, readBody(new(Reader), "", 403, "", body).Permanent, body)
	}
	// In a success only the codes of errors count, and the error itself.
	for body, want := range map[string]bool{
		`{"error":"ratelimited"}`: true, `{"data":{"error":"ratelimited"}}`: false, `{"code":"ratelimited"}`: false,
		`{"error":{"code":"ratelimited"}}`: true, `{"errors":[{"code":"ratelimited"}]}`: true, `{"data":{"errors":[{"code":"ratelimited"}]}}`: false,
		`{"errors":[{"message":"Throttled"}]}`: true, `{"errors":[{"message":"throttled"}]}`: false, `{"message":"Throttled"}`: false,
		`{"error":{"message":"Throttled"}}`: true, `{"errors":[{"path":["a"],"message":"x"},{"message":"Throttled"}]}`: true,
	} {
		require.Equal(t, want, readBody(new(Reader), "", 200, "", body).Throttled, body)
	}
}

// TestReadBody_addsACostOnce checks the limit that the throttleStatus of Shopify states.
func TestReadBody_addsACostOnce(t *testing.T) {
	for body, want := range map[string][]Limit{
		`{"maximumAvailable":100,"currentlyAvailable":7,"restoreRate":2.5}`: {{Name: "cost", Unit: "points", Limit: 100, Remaining: 7, HasLimit: true, HasRemaining: true, Rate: 2.5}},
		`{"maximumAvailable":1}`:                   {{Name: "cost", Unit: "points", Limit: 1, HasLimit: true, HasRemaining: true}},
		`{"maximumAvailable":0,"restoreRate":2}`:   nil,
		`{"currentlyAvailable":7,"restoreRate":2}`: nil,
		`{"maximumAvailable":-5}`:                  nil,
	} {
		require.Equal(t, want, readBody(new(Reader), "", http.StatusOK, "", body).Limits, body)
	}
}

// TestReadBody_findsProviderCodes checks the separators of the words in XML and prose, and the
// namespace before a # in JSON.
func TestReadBody_findsProviderCodes(t *testing.T) {
	r := &Reader{Hosts: map[string]Provider{"api.test": {ErrorCodes: []string{"Slow_2", "Busy"}}}}
	for body, want := range map[string]bool{
		"Slow_2": true, "<Code>Slow_2</Code>": true, "error: Slow_2.": true, "x Slow_2": true, "éSlow_2é": true, "Busy": true,
		"Slow-2": false, "Slow_23": false, "aSlow_2": false, "slow_2": false, "": false,
		`{"code":"Slow_2"}`: true, `{"code":"ns#Slow_2"}`: true, `{"code":"a#b#Busy"}`: true, `{"code":"#Busy"}`: true,
		`{"code":"Busy#x"}`: false, `{"code":"x Busy"}`: false, `{"name":"Busy"}`: false,
	} {
		require.Equal(t, want, readBody(r, "api.test", 400, "", body).Throttled, body)
		require.False(t, readBody(r, "other.test", 400, "", body).Throttled, body)
	}
}
