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
