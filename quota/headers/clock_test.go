package headers

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// resetOf returns the delay until the reset of a response that was received then.
func resetOf(t *testing.T, date time.Time, reset string, received time.Time) time.Duration {
	t.Helper()
	h := http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"5"}, "X-Ratelimit-Reset": {reset}}
	if !date.IsZero() {
		h.Set("Date", date.UTC().Format(http.TimeFormat))
	}
	r := Parse(http.StatusOK, h, received)
	require.Len(t, r.Limits, 1)
	require.True(t, r.Limits[0].HasReset)
	return r.Limits[0].ResetAfter
}

// An instant counts from the local clock if that is within the second of the Date, which is in whole seconds. Otherwise
// one of the clocks is wrong, and it counts from the Date.
func TestClock_isTheLocalOneIfItAgreesWithDate(t *testing.T) {
	const ms = time.Millisecond
	date := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	in5s := strconv.FormatInt(date.Unix()+5, 10)
	inMillis := strconv.FormatInt(date.UnixMilli()+1200, 10)
	for name, tt := range map[string]struct {
		late  time.Duration // of the local clock, after the Date
		reset string
		want  time.Duration
	}{
		"the same instant":               {0, in5s, 5 * time.Second},
		"in the second":                  {900 * ms, in5s, 4100 * ms},
		"at its end":                     {999 * ms, in5s, 4001 * ms},
		"the next second":                {1000 * ms, in5s, 5 * time.Second},
		"an hour ahead":                  {time.Hour, in5s, 5 * time.Second},
		"behind":                         {-1, in5s, 5 * time.Second},
		"milliseconds, in the second":    {900 * ms, inMillis, 300 * ms},
		"milliseconds, an hour behind":   {-time.Hour, inMillis, 1200 * ms},
		"milliseconds, over in the next": {1500 * ms, inMillis, 1200 * ms},
	} {
		require.Equal(t, tt.want, resetOf(t, date, tt.reset, date.Add(tt.late)), name)
	}
	require.Equal(t, 4100*ms, resetOf(t, time.Time{}, in5s, date.Add(900*ms)), "without a Date")
}

// If it is known when the request was sent, the clocks agree if the second of the Date of a success is between then and receipt: servers
// read their clock when a request arrives, as Apache does, or when they respond. A rejection is obeyed for as long as it may mean.
func TestReader_datesOfSlowResponses(t *testing.T) {
	date := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	const took = 20 * time.Second
	for name, tt := range map[string]struct {
		status int
		sent   time.Duration // after the Date
		want   time.Duration // from receipt to 30 s after the Date
	}{
		"dated at its arrival":            {200, -time.Second, 11 * time.Second},
		"at the end of the second":        {200, 999 * time.Millisecond, 9001 * time.Millisecond},
		"dated before it was sent":        {200, time.Second, 30 * time.Second},
		"dated with the response":         {200, -took, 30 * time.Second},
		"dated half way":                  {200, -took / 2, 20 * time.Second},
		"dated after its receipt":         {200, -took - 1, 30 * time.Second},
		"a rejection, at its arrival":     {429, -time.Second, 30 * time.Second},
		"a rejection, with the response":  {429, -took, 30 * time.Second},
		"a failure, dated at its arrival": {503, -time.Second, 30 * time.Second},
	} {
		h := http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"5"}, "Date": {date.Format(http.TimeFormat)}}
		h.Set("X-Ratelimit-Reset", strconv.FormatInt(date.Unix()+30, 10))
		sent := date.Add(tt.sent)
		r := new(Reader).Read(nil, &http.Response{StatusCode: tt.status, Header: h}, sent, sent.Add(took))
		require.Len(t, r.Limits, 1)
		require.Equal(t, tt.want, r.Limits[0].ResetAfter, name)
		for _, unknown := range []time.Time{{}, sent.Add(2 * took)} {
			r = new(Reader).Read(nil, &http.Response{StatusCode: tt.status, Header: h}, unknown, sent.Add(took))
			require.Equal(t, Parse(tt.status, h, sent.Add(took)).Limits, r.Limits, name)
		}
	}
}

// The clock of a testing/synctest bubble begins in 2000, where the time since 1970 is a number of nine digits. It is an
// instant there, and a delay anywhere else.
func TestClock_unixTimeOf2000(t *testing.T) {
	bubble := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	number := strconv.FormatInt(bubble.Unix()+30, 10)
	require.Len(t, number, 9)
	require.Equal(t, 30*time.Second, resetOf(t, bubble, number, bubble))
	later := bubble.Add(200 * 24 * time.Hour)
	require.Zero(t, resetOf(t, later, number, later), "it is over")
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	require.Greater(t, resetOf(t, now, number, now), 300*24*time.Hour)
	r := Parse(http.StatusTooManyRequests, http.Header{"Retry-After": {number}}, bubble)
	require.Equal(t, 30*time.Second, r.RetryAfter)
}
