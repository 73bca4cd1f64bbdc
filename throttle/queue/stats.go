package queue

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// Stats describes one class of a Queue: the waiters of one tenant that need the same limits.
type Stats struct {
	// Demands are those of the first waiter.
	Demands [MaxDemands]throttle.Demand

	// Tenant is Ticket.Tenant of the waiters.
	Tenant string

	// Waiting is the number of waiters.
	Waiting int

	// HeadWaited is how long the first waiter has waited.
	HeadWaited time.Duration

	// Limit is the name of the limit that the class waits for. It is empty while the limiters
	// are being asked for the first time.
	Limit string

	// Key is the throttle.Claim.Key of the demand for Limit.
	Key string

	// GrantAfter is the time until the first waiter is granted if nothing changes. Zero means
	// that it is not known, or that BehindOther is set.
	GrantAfter time.Duration

	// BehindOther is set if another class that waits for Limit is granted first.
	BehindOther bool
}

// Stats returns the Stats of all classes, in no particular order.
func (q *Queue) Stats() []Stats {
	if q.numWaiting.Load() == 0 {
		return nil
	}
	q.lock()
	stats := make([]Stats, 0, len(q.classes))
	for _, c := range q.classes {
		stats = append(stats, q.classStats(c))
	}
	q.unlock()
	return stats
}

func (q *Queue) classStats(c *class) Stats {
	first := c.waiters.First().ticket
	stats := Stats{
		Demands:    first.Demands,
		Tenant:     c.key.tenant,
		Waiting:    c.waiters.Len(),
		HeadWaited: time.Duration(q.now) - first.waited,
	}
	if e := c.blockedAt; e != nil {
		stats.Limit, stats.Key, stats.BehindOther = e.limitQueue.last.name, e.limitQueue.key.key, e.limitQueue.first() != e
		if e.limitQueue.retryExact && !stats.BehindOther {
			stats.GrantAfter = time.Duration(max(e.limitQueue.retryAt-q.now, 0))
		}
	}
	return stats
}
