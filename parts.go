package heed

import (
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle/queue"
)

// Parts are what a Transport uses and may share with others. Their Snapshot methods describe
// their state, for a debug page or for metrics.
type Parts struct {
	// Quota is Transport.Quota, or the Tracker of the Transport if that is nil.
	Quota *quota.Tracker

	// Queue is Transport.Queue, or the Queue of the Transport if that is nil.
	Queue *queue.Queue

	// Budget is the Budget of Transport.Retry, or that of the Transport if there is none. The
	// policies that RetryFor returns may have others.
	Budget *backoff.Budget
}

// Parts returns the parts that t uses. They are always the same.
func (t *Transport) Parts() Parts {
	t.resolve()
	r := &t.resolved
	return Parts{Quota: r.quota, Queue: r.queue, Budget: r.retry.Budget}
}
