package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A log that is full counts all requests, and none earlier than it was sent: units are never
// expected too early.
func TestSendLog_losesNoRequestsWhenItIsFull(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	sent := []int{0, 10, 11, 30, 60, 61, 62, 100, 150, 151, 200, 300, 301, 310, 400, 500, 501, 600, 640, 641, 700, 800, 900, 901, 1000}
	l := newSendLog(start, 5)
	for _, ms := range sent[1:] {
		l.add(at(ms), 2)
	}
	require.EqualValues(t, 5+2*(len(sent)-1), l.count(at(-1), at(1000)))
	before := int64(5)
	for i, ms := range sent {
		if i > 0 {
			before += 2
		}
		require.LessOrEqual(t, l.count(at(-1), at(ms)), before, "until %d ms", ms)
	}
}

// The oldest requests are dropped until no more are left than the server states to be used.
func TestSendLog_dropsTheOldestRequests(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for used, want := range map[int64][3]int64{ // in the entries of 0 s, 1 s and 2 s
		10: {2, 3, 4}, 9: {2, 3, 4}, 8: {1, 3, 4}, 7: {0, 3, 4}, 6: {0, 2, 4}, 4: {0, 0, 4}, 1: {0, 0, 1}, 0: {},
	} {
		l := newSendLog(start, 2)
		l.add(at(1), 3)
		l.add(at(2), 1)
		l.add(at(2), 3)
		l.trim(used)
		got := [3]int64{}
		for i := range got {
			got[i] = l.count(at(i-1), at(i))
		}
		require.Equal(t, want, got, "%d used", used)
		if used == 7 {
			require.Equal(t, at(1), l.next(at(-1)), "of the requests that are left")
		}
	}
}
