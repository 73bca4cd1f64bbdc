package queue

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Stats is what a Queue shows of one of its lines: the callers of one tenant who
// must pass the same limits.
type Stats struct {
	Demands     [MaxDemands]throttle.Demand // of the first in line
	Tenant      string                      // Ticket.Tenant
	Waiting     int                         // callers in line
	HeadWaited  time.Duration               // how long the first has been in line
	Limit       string                      // name of the limit that the line waits for; "": it is just being asked
	Key         string                      // throttle.Claim.Key there
	GrantAfter  time.Duration               // until the first is let through, if nothing changes; 0: unknown, or it is behind another line
	BehindOther bool                        // another line goes first there
}

// Stats returns all lines, in no order.
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
		stats.Limit, stats.Key, stats.BehindOther = *e.limitQueue.policy, e.limitQueue.key.key, e.limitQueue.first() != e
		if e.limitQueue.retryExact && !stats.BehindOther {
			stats.GrantAfter = time.Duration(max(e.limitQueue.retryAt-q.now, 0))
		}
	}
	return stats
}
