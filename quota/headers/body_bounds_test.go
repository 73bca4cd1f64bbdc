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
		name   string
		status int
		body   string
		want   string
	}{
		{"a code at the end of 8 KiB", 403, long(maxPeek, `{"pad":"%s","code":"rate_limited"`) + "}", "refused"},
		{"a code that ends after it", 403, long(maxPeek+1, `{"pad":"%s","code":"rate_limited"`) + "}", ""},
		{"a code of twelve levels", 403, nested(11, `{"code":"rate_limited"}`), "refused"},
		{"a code of more", 403, nested(12, `{"code":"rate_limited"}`), ""},
		{"a code of the longest length", 403, `{"code":"rate_limited` + strings.Repeat("_", maxNameLen-len("rate_limited")) + `"}`, "refused"},
		{"a longer code", 403, `{"code":"rate_limited` + strings.Repeat("_", maxNameLen+1-len("rate_limited")) + `"}`, ""},
		{"blanks before JSON", 403, " \r\n\t{\"code\":\"rate_limited\"}", "refused"},
		{"an array", 403, `[{"code":"rate_limited"}]`, "refused"},
		{"an array of arrays", 403, `[[{"code":"rate_limited"}]]`, "refused"},
		{"a string alone", 403, `"rate_limited"`, ""},
		{"prose that begins like JSON", 403, `[see the secondary rate limit`, ""},
		{"nothing", 403, "", ""},
		{"blanks", 403, " \n", ""},
	} {
		require.Equal(t, c.want, formatReport(readBody(new(Reader), "", c.status, "", c.body)), c.name)
	}
	require.Equal(t, StatedRejection, readBody(new(Reader), "", 429, "", long(maxPeek, `%s too many requests`)).Stated)
	require.Equal(t, NotStated, readBody(new(Reader), "", 429, "", long(maxPeek+1, `%s too many requests`)).Stated, "the last byte is not read")
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
		require.Equal(t, strings.TrimPrefix(c.want+", refused", ", "), formatReport(rep), "%s %s", c.header, c.body)
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
		{403, `{"global":true,"code":"rate_limited"}`, true},
	} {
		require.Equal(t, c.want, readBody(new(Reader), "", c.status, "", c.body).Global, "%d %s", c.status, c.body)
	}
}

// TestReadBody_phrasesByStatus checks on which statuses the phrases of prose and of messages
// make a rejection explicit.
func TestReadBody_phrasesByStatus(t *testing.T) {
	const phrase, secondary = "Too Many Requests", "You hit the Abuse Detection Mechanism"
	for _, c := range []struct {
		status            int
		phrase, secondary Statement
		wait              time.Duration // of secondary
	}{
		{200, NotStated, NotStated, 0}, {400, NotStated, NotStated, 0}, {402, NotStated, NotStated, 0},
		{403, NotStated, StatedWait, time.Minute}, {404, NotStated, NotStated, 0}, {428, NotStated, NotStated, 0},
		{429, StatedRejection, StatedWait, time.Minute}, {430, NotStated, NotStated, 0}, {500, NotStated, NotStated, 0},
		{503, StatedRejection, StatedRejection, 0}, {504, NotStated, NotStated, 0},
	} {
		for _, form := range []string{"%s", `{"message":"%s"}`, `{"error":{"message":"%s"}}`, `{"errors":[{"message":"%s"}]}`, `[{"message":"%s"}]`} {
			require.Equal(t, c.phrase, readBody(new(Reader), "", c.status, "", fmt.Sprintf(form, phrase)).Stated, "%d %s", c.status, form)
			rep := readBody(new(Reader), "", c.status, "", fmt.Sprintf(form, secondary))
			require.Equal(t, c.secondary, rep.Stated, "%d %s", c.status, form)
			require.Equal(t, c.wait, rep.Wait, "%d %s", c.status, form)
		}
	}
	for _, body := range []string{
		`{"data":{"message":"too many requests"}}`, `{"text":"too many requests"}`,
		`{"error":{"errors":[{"message":"too many requests"}]}}`, // too deep for a summary of the response
	} {
		require.Equal(t, NotStated, readBody(new(Reader), "", 429, "", body).Stated, body)
	}
}

// TestReadBody_codesByStatusAndPlace checks on which statuses and in which members error codes
// make a response a rejection.
func TestReadBody_codesByStatusAndPlace(t *testing.T) {
	for status, want := range map[int]bool{
		200: false, 399: false, 400: false, 402: false, 403: true, 404: false, 428: false, 429: true, 430: false,
		500: false, 502: false, 503: true, 504: false, 528: false, 529: true, 530: false,
	} {
		require.Equal(t, want, readBody(new(Reader), "", status, "", `{"code":"rate_limited"}`).Throttled, status)
		require.Equal(t, want, readBody(new(Reader), "", status, "", `{"code":"account_suspended"}`).Permanent, status)
	}
	for body, want := range map[string]bool{
		`{"type":"throttled"}`: true, `{"reason":"throttled"}`: true, `{"status":"throttled"}`: true, `{"errorCode":"throttled"}`: true,
		`{"error_code":"throttled"}`: true, `{"errorcode":"throttled"}`: true, `{"__type":"throttled"}`: true, `{"Code":"throttled"}`: true,
		`{"error":"throttled"}`: true, `{"name":"throttled"}`: false, `{"error":{"name":"throttled"}}`: false,
		`{"Error":{"Code":"throttled"}}`: true, `{"Errors":[{"Code":"throttled"}]}`: true, `{"fault":{"detail":{"errorcode":"throttled"}}}`: true,
		`{"details":[{"reason":"throttled"}]}`: true, `{"extensions":{"code":"throttled"}}`: true, `{"data":{"code":"throttled"}}`: false,
		`{"data":{"error":{"code":"throttled"}}}`: false, `{"error":{"data":{"code":"throttled"}}}`: false, `{"error":{"data":1,"code":"throttled"}}`: true,
		`{"data":{"x":[1,{}]},"error":{"code":"throttled"}}`: true,
		`{"code":"Throttled!"}`:                              true, `{"code":"not throttled"}`: false, `{"code":true,"type":"THROTTLED"}`: true,
	} {
		require.Equal(t, want, readBody(new(Reader), "", 403, "", body).Throttled, body)
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
