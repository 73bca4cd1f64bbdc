//go:build !race

package queue

import (
	"testing"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

func TestQueue_waitQueuedDoesNotAllocate(t *testing.T) {
	q, l := new(Queue), throttle.AllowAll
	tk := ticket(l)
	queued := func(Position) error { return nil }
	require.Zero(t, testing.AllocsPerRun(100, func() {
		require.NoError(t, q.WaitHooks(t.Context(), tk, Hooks{Queued: queued}))
		q.Report(t.Context(), tk, throttle.Feedback{State: throttle.Unused})
	}))
}
