package headers

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse_readsRetryAfterInEveryFormat(t *testing.T) {
	now := time.Date(2026, 2, 18, 9, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for name, c := range map[string]struct {
		header string
		values []string
		want   time.Duration
		format TimeFormat
	}{
		"whole":            {"Retry-After", []string{"120"}, 2 * time.Minute, FormatDeltaSeconds},
		"zero":             {"Retry-After", []string{"0"}, 0, FormatDeltaSeconds},
		"plus":             {"Retry-After", []string{"+4"}, 4 * time.Second, FormatDeltaSeconds},
		"fraction":         {"Retry-After", []string{"0.314"}, 314 * time.Millisecond, FormatDeltaSeconds},
		"fraction up":      {"Retry-After", []string{"0.0000000001"}, 1, FormatDeltaSeconds},
		"blanks":           {"Retry-After", []string{" 3 "}, 3 * time.Second, FormatDeltaSeconds},
		"blanks, too long": {"Retry-After", []string{" 100000000000 "}, MaxDelay, FormatDeltaSeconds},
		"fixdate":          {"Retry-After", []string{at(5 * time.Second)}, 5 * time.Second, FormatDate},
		"utc":              {"Retry-After", []string{now.Add(time.Minute).Format("Mon, 02 Jan 2006 15:04:05") + " UTC"}, time.Minute, FormatDate},
		"asctime":          {"Retry-After", []string{now.Add(time.Minute).Format(time.ANSIC)}, time.Minute, FormatDate},
		"rfc850":           {"Retry-After", []string{now.Add(time.Minute).Format("Monday, 02-Jan-06 15:04:05 GMT")}, time.Minute, FormatDate},
		"past date":        {"Retry-After", []string{at(-time.Hour)}, 0, FormatDate},
		"epoch":            {"Retry-After", []string{strconv.FormatInt(now.Unix()+30, 10)}, 30 * time.Second, FormatEpochSeconds},
		"epoch past":       {"Retry-After", []string{strconv.FormatInt(now.Unix()-30, 10)}, 0, FormatEpochSeconds},
		"epoch millis":     {"Retry-After", []string{strconv.FormatInt(now.UnixMilli()+1500, 10)}, 1500 * time.Millisecond, FormatEpochMillis},
		"ten years":        {"Retry-After", []string{"315360000"}, MaxDelay, FormatDeltaSeconds}, // issue 11.4: limited to a year
		"endless":          {"Retry-After", []string{"9223372036854775807"}, MaxDelay, FormatDeltaSeconds},
		"beyond int64":     {"Retry-After", []string{"99999999999999999999999"}, MaxDelay, FormatDeltaSeconds},
		"longest counts":   {"Retry-After", []string{"1", "7", "x", "-9", "3"}, 7 * time.Second, FormatDeltaSeconds},
		"a list":           {"Retry-After", []string{"2, 5"}, 5 * time.Second, FormatDeltaSeconds},
		"a list, reversed": {"Retry-After", []string{"5.5, 2, 0"}, 5500 * time.Millisecond, FormatDeltaSeconds},
		"milliseconds":     {"Retry-After-Ms", []string{"1500"}, 1500 * time.Millisecond, FormatDeltaMillis},
		"azure":            {"X-Ms-Retry-After-Ms", []string{"27"}, 27 * time.Millisecond, FormatDeltaMillis},
		"x-ratelimit":      {"X-Ratelimit-Retry-After", []string{"37"}, 37 * time.Second, FormatDeltaSeconds},
		"seconds":          {"X-Rate-Limit-Retry-After-Seconds", []string{"50"}, 50 * time.Second, FormatDeltaSeconds},
		"duration":         {"X-Retry-In", []string{"734.512ms"}, 734512 * time.Microsecond, FormatDuration},
		"vendor":           {"X-Ms-Ratelimit-Microsoft.costmanagement-Qpu-Retry-After", []string{"12"}, 12 * time.Second, FormatDeltaSeconds},
		"at":               {"X-Ratelimit-Retry-At", []string{strconv.FormatInt(now.Unix()+9, 10)}, 9 * time.Second, FormatEpochSeconds},
		"lower case names": {"retry-after", []string{"5"}, 5 * time.Second, FormatDeltaSeconds},
	} {
		h := http.Header{c.header: c.values, "Date": {at(0)}}
		r := Parse(429, h, now.Add(10*time.Minute)) // the local clock is wrong
		require.True(t, r.HasRetryAfter, name)
		require.Equal(t, c.want, r.RetryAfter, name)
		require.Equal(t, c.format, r.RetryFormat, name)
		require.True(t, r.Throttled, name)
	}
}

func TestParse_ignoresMalformedRetryAfter(t *testing.T) {
	for _, v := range []string{"", " ", "-1", "-1484742195", "1000abc", "abc", "0x10", "1e3", "1,5", "2, x", "2, -5", "2, ", "soon", "--1", "1.", "NaN", "Inf"} {
		r := Parse(429, http.Header{"Retry-After": {v}}, time.Unix(1700000000, 0))
		require.False(t, r.HasRetryAfter, v)
		require.Zero(t, r.RetryAfter, v)
	}
}

func TestParse_usesLongestRetryHeader(t *testing.T) {
	r := Parse(429, http.Header{"Retry-After": {"1"}, "Retry-After-Ms": {"0"}, "X-Ratelimit-Retry-After": {"9"}}, time.Unix(1700000000, 0))
	require.Equal(t, 9*time.Second, r.RetryAfter)
}

func TestParse_detectsRetryAfterInMilliseconds(t *testing.T) {
	h := http.Header{"Retry-After": {"60000"}, "X-Ratelimit-Limit": {"5"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"58"}}
	r := Parse(429, h, time.Unix(1700000000, 0))
	require.Equal(t, time.Minute, r.RetryAfter)
	require.Equal(t, FormatDeltaMillis, r.RetryFormat)
}

func TestParse_retryAfterAloneIsNotThrottled(t *testing.T) {
	for _, status := range []int{200, 202, 301, 404, 500, 503} {
		r := Parse(status, http.Header{"Retry-After": {"98"}}, time.Unix(1700000000, 0))
		require.Equal(t, 98*time.Second, r.RetryAfter, status)
		require.False(t, r.Throttled, status)
	}
}

// The trace was recorded from a client that waits 2 s if it cannot parse the header or
// ignores the status.
func TestParse_agreesWithRecordedRetryAfter(t *testing.T) {
	f, err := os.Open("testdata/retry_after.jsonl")
	require.NoError(t, err)
	defer f.Close()
	differs := map[string]string{
		"1.5":                  "we read fractions",
		" 3":                   "blanks do not count in header values",
		"3 ":                   "blanks do not count in header values",
		"9223372036":           "clamped to a year (issue 11.4)",
		"9223372037":           "their seconds overflow",
		"99999999999999999999": "what is too large to count is long, not unsaid",
	}
	compared := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var c struct {
			Params struct {
				Header string
				Status int
			}
			Seq []time.Duration `json:"seq_ns"`
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &c))
		if _, skip := differs[c.Params.Header]; skip || c.Params.Status != 429 && c.Params.Status != 503 {
			continue
		}
		compared++
		r := Parse(c.Params.Status, http.Header{"Retry-After": {c.Params.Header}}, time.Unix(1700000000, 0))
		if !r.HasRetryAfter {
			r.RetryAfter = 2 * time.Second
		}
		require.Equal(t, c.Seq[0], r.RetryAfter, "%q", c.Params.Header)
	}
	require.Equal(t, 22, compared)
}

func TestParse_obeysEnvoyRatelimitedOnAnyStatus(t *testing.T) {
	r := Parse(503, http.Header{"X-Envoy-Ratelimited": {"true"}}, time.Unix(1700000000, 0))
	require.True(t, r.Throttled)
}
