package concurrency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A response is late if it takes longer than four times the usual time and 100 ms.
func TestSlowResponses_lateIsRelativeToTheUsualTime(t *testing.T) {
	s := SlowResponses{Typical: 100 * time.Millisecond}
	require.False(t, s.IsLate(500*time.Millisecond))
	require.True(t, s.IsLate(500*time.Millisecond+1))
	s.Typical = 0
	require.False(t, s.IsLate(time.Hour), "the usual time is not known")
}

// One claim is watched at a time. When its response is overdue as another claim is granted, no more
// requests may be in flight, and that other one is watched.
func TestSlowResponses_watchesOneClaim(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	s := SlowResponses{Typical: 100 * ms}
	s.Granted(1, 1, 4, now)
	s.Granted(2, 2, 4, now.Add(500*ms))
	require.Equal(t, SlowResponses{Watched: 1, Sent: now, Typical: 100 * ms}, s, "it is not late yet")
	late := now.Add(500*ms + 1)
	s.Granted(3, 9, 4, late)
	require.Equal(t, SlowResponses{Watched: 3, Sent: late, Typical: 100 * ms, MaxInFlight: 9, since: 2}, s)
	s.Granted(4, 9, 4, late.Add(time.Second))
	require.Equal(t, SlowResponses{Watched: 3, Sent: late, Typical: 100 * ms, MaxInFlight: 9, since: 2}, s, "it was granted after the bound was set")
}

// What the response to the watched claim changes. The bound was set at 8 when claim 10 was the latest.
func TestSlowResponses_theResponseToTheWatchedClaimDecides(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		watched     uint64
		took        time.Duration
		maxInFlight int64
		open        int64
		wantMax     int64
		wantSince   uint64
		typical     time.Duration
	}{
		"in time, no bound":             {11, 100 * ms, 0, 7, 0, 10, 100 * ms},
		"late, no bound":                {11, 900 * ms, 0, 7, 8, 20, 200 * ms},
		"late, no bound, few in flight": {11, 900 * ms, 0, 1, 4, 20, 200 * ms},
		"late, bounded":                 {11, 900 * ms, 8, 7, 8, 10, 200 * ms},
		"in time, sent before":          {10, 100 * ms, 8, 7, 8, 10, 100 * ms},
		"in time, sent after":           {11, 100 * ms, 8, 4, 16, 20, 100 * ms},
		"in time, little is used":       {11, 100 * ms, 8, 3, 0, 10, 100 * ms},
		"faster than usual":             {11, 20 * ms, 0, 7, 0, 10, 90 * ms},
	} {
		s := SlowResponses{Watched: tt.watched, Sent: now, Typical: 100 * ms, MaxInFlight: tt.maxInFlight, since: 10}
		s.Record(tt.watched, false, 20, tt.open, 4, now.Add(tt.took))
		require.Equal(t, SlowResponses{Sent: now, Typical: tt.typical, MaxInFlight: tt.wantMax, since: tt.wantSince}, s, name)
	}
	var s SlowResponses
	s.Granted(1, 1, 4, now)
	s.Record(1, false, 1, 0, 4, now.Add(-time.Hour))
	require.EqualValues(t, 1, s.Typical, "a clock that was set back")
	s.Watched = 1
	s.Record(1, false, 1, 0, 4, now.Add(9))
	require.EqualValues(t, 2, s.Typical)
}

// The first response is the usual time.
func TestSlowResponses_firstResponse(t *testing.T) {
	now := time.Unix(1000, 0)
	var s SlowResponses
	s.Granted(1, 1, 4, now)
	s.Record(1, false, 1, 0, 4, now.Add(time.Second))
	require.Equal(t, SlowResponses{Sent: now, Typical: time.Second}, s)
}

// The bound holds as many requests as are in flight, at least the minimum, and is set once.
func TestSlowResponses_boundsWhatIsInFlight(t *testing.T) {
	var s SlowResponses
	s.begin(7, 3, 4)
	require.Equal(t, SlowResponses{MaxInFlight: 4, since: 7}, s)
	s.begin(8, 9, 4)
	require.Equal(t, SlowResponses{MaxInFlight: 4, since: 7}, s)
	s = SlowResponses{}
	s.begin(7, 9, 4)
	require.EqualValues(t, 9, s.MaxInFlight)
}

// Four failures among the latest eight responses begin slow responses with half of what is in flight. A
// failed claim is not watched any more.
func TestSlowResponses_failuresBeginThem(t *testing.T) {
	now := time.Unix(1000, 0)
	var s SlowResponses
	s.Granted(21, 9, 4, now)
	record := func(n uint64, failed bool) { s.Record(n, failed, 30, 9, 4, now) }
	record(20, true)
	require.EqualValues(t, 21, s.Watched)
	record(22, false)
	require.Equal(t, SlowResponses{Watched: 21, Sent: now, Recent: 0b10}, s, "another claim succeeded")
	record(23, true)
	record(24, true)
	require.Zero(t, s.MaxInFlight)
	record(21, true)
	require.Equal(t, SlowResponses{Sent: now, MaxInFlight: 4, since: 30}, s)
	for recent, want := range map[uint8]int64{0b0100_0101: 20, 0b1000_0101: 0, 0b11: 0} {
		s = SlowResponses{Recent: recent}
		s.Record(25, true, 30, 40, 4, now)
		require.Equal(t, want, s.MaxInFlight, "%b", recent)
	}
	s = SlowResponses{Recent: 0b111, MaxInFlight: 30, since: 7}
	record(25, true)
	require.Equal(t, SlowResponses{Recent: 0b1111, MaxInFlight: 30, since: 7}, s, "they have begun already")
	s = SlowResponses{Watched: 24, Sent: now, Recent: 1}
	s.Record(24, false, 30, 9, 4, now.Add(time.Second))
	require.Equal(t, SlowResponses{Sent: now, Recent: 0b10, Typical: time.Second}, s)
}

// When a response is late, and how many requests are sent until then, follows from the usual time.
func TestSlowResponses_whenARequestIsLate(t *testing.T) {
	now := time.Unix(1000, 0)
	s := SlowResponses{Typical: 100 * time.Millisecond}
	require.Equal(t, now.Add(500*time.Millisecond+1), s.LateAt(now))
	require.True(t, s.IsLate(s.LateAt(now).Sub(now)))
	require.EqualValues(t, 4, s.SentUntilLate(10))
	require.EqualValues(t, 3, s.SentUntilLate(9.9))
}
