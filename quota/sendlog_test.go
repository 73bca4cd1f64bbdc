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
