package heed

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle/queue"
)

func TestTransport_partsAreThoseInUse(t *testing.T) {
	own := new(Transport)
	p := own.Parts()
	require.NotNil(t, p.Quota)
	require.NotNil(t, p.Queue)
	require.NotNil(t, p.Budget)
	require.Equal(t, p, own.Parts())

	want := Parts{Quota: new(quota.Tracker), Queue: new(queue.Queue), Budget: new(backoff.Budget)}
	set := &Transport{Quota: want.Quota, Queue: want.Queue, Retry: &RetryPolicy{Budget: want.Budget}}
	require.Same(t, want.Quota, set.Parts().Quota)
	require.Same(t, want.Queue, set.Parts().Queue)
	require.Same(t, want.Budget, set.Parts().Budget)
}
