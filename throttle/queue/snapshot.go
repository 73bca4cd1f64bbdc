package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Snapshot is a copy of the state of a Queue, for a debug page or for metrics.
type Snapshot struct {
	// At is the time of the Snapshot on Queue.Clock.
	At time.Time

	// Waiting is the number of callers that wait.
	Waiting int

	// Closed is set if Close or Drain has been called, so that further callers are rejected.
	Closed bool

	// Granted is the number of callers that were granted after they had joined a class.
	Granted uint64

	// Rejected is the number of calls of Wait and Try whose error matches throttle.ErrRejected.
	Rejected uint64

	// Failed is the number of calls of Wait and Try with another error.
	Failed uint64

	// Limits describes at most 1,000 limits that waiters need, the one with the longest wait first.
	Limits []LimitSnapshot

	// Classes describes at most 1,000 classes of waiters, the one with the longest wait first.
	Classes []ClassSnapshot

	// OmittedLimits and OmittedClasses are the numbers of limits and classes that Limits and Classes do not hold.
	OmittedLimits, OmittedClasses int
}

// maxSnapshot is the maximum length of Snapshot.Limits and Classes, and of classes visited for one limit.
const maxSnapshot = 1000

// A LimitSnapshot describes one limit that callers wait for. A limit with several keys has one for each key.
type LimitSnapshot struct {
	// Name is the name of the limit in its last rejection. It is empty if there was none.
	Name string

	// Key is the throttle.Claim.Key of the claims.
	Key string

	// ServerImposed and Estimated are those of the last rejection, see throttle.Decision.
	ServerImposed, Estimated bool

	// Waiting is the number of callers that need the limit, including those that currently wait for another limit.
	Waiting int

	// Units is the number of units that these callers need.
	Units int64

	// Blocked is the number of callers that currently wait for this limit. With more than
	// 1,000 classes it counts only those of 1,000.
	Blocked int

	// Tenants is the number of tenants of the blocked callers.
	Tenants int

	// LongestWait is the longest time that a caller has waited of those that are first in
	// their class and blocked. Zero means that no caller is blocked.
	LongestWait time.Duration

	// GrantAfter is the time until the next claim is granted, as the limit stated it. Zero means that it is not known.
	GrantAfter time.Duration

	// Since is when callers began to need the limit, without a moment at which none did. Granted
	// and Rejected are counted from then on.
	Since time.Time

	// Granted is the number of callers that needed the limit and were granted since then.
	Granted uint64

	// Rejected is the number of callers that were rejected because of the limit since then.
	Rejected uint64
}

// A ClassSnapshot describes one class of a Queue: the waiters of one tenant that need the same limits.
type ClassSnapshot struct {
	// Demands are those of the first waiter.
	Demands []throttle.Demand

	// Tenant is Ticket.Tenant of the waiters.
	Tenant string

	// Waiting is the number of waiters.
	Waiting int

	// HeadWaited is how long the first waiter has waited.
	HeadWaited time.Duration

	// Limit is the name of the limit that the class waits for. Empty means not yet known.
	Limit string

	// Key is the throttle.Claim.Key of the demand for Limit.
	Key string

	// GrantAfter is the time until the first waiter is granted if nothing changes. Zero means
	// that it is not known, or that BehindOther is set.
	GrantAfter time.Duration

	// BehindOther is set if another class that waits for Limit is granted first.
	BehindOther bool
}

// Snapshot returns a copy of the state of q. Its time does not depend on the number of waiters.
func (q *Queue) Snapshot() Snapshot {
	q.initOnce.Do(q.init)
	q.lock()
	waiting := q.numWaiting.Load()
	s := Snapshot{
		At: q.time.At(q.now), Waiting: int(waiting % closedBit), Closed: waiting >= closedBit,
		Granted: q.numGranted, Rejected: q.numRejected.Load(), Failed: q.numFailed.Load(),
		OmittedLimits: max(len(q.limitQueues)-maxSnapshot, 0), OmittedClasses: max(len(q.classes)-maxSnapshot, 0),
	}
	for _, lq := range q.limitQueues {
		if len(s.Limits) == maxSnapshot {
			break
		}
		s.Limits = append(s.Limits, q.limitSnapshot(lq))
	}
	for _, c := range q.classes {
		if len(s.Classes) == maxSnapshot {
			break
		}
		s.Classes = append(s.Classes, q.classSnapshot(c))
	}
	q.unlock()
	slices.SortFunc(s.Limits, func(a, b LimitSnapshot) int {
		return cmp.Or(cmp.Compare(b.LongestWait, a.LongestWait), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	slices.SortFunc(s.Classes, func(a, b ClassSnapshot) int {
		return cmp.Or(cmp.Compare(b.HeadWaited, a.HeadWaited), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Key, b.Key))
	})
	return s
}

// limitSnapshot returns the LimitSnapshot of lq. The caller holds the lock.
func (q *Queue) limitSnapshot(lq *limitQueue) LimitSnapshot {
	s := LimitSnapshot{
		Name: lq.last.name, Key: lq.key.key, ServerImposed: lq.last.serverImposed, Estimated: lq.last.estimated,
		Waiting: lq.waiting, Units: lq.waitingUnits, Tenants: lq.tenants.Len(),
		GrantAfter: q.grantAfter(lq), Since: q.time.At(lq.since),
		Granted: lq.granted, Rejected: lq.rejected,
	}
	visited := 0
	for c := range lq.blocked {
		if visited++; visited > maxSnapshot {
			break
		}
		s.Blocked += c.waiters.Len()
		s.LongestWait = max(s.LongestWait, time.Duration(q.now)-c.waiters.First().ticket.waited)
	}
	return s
}

// classSnapshot returns the ClassSnapshot of c. The caller holds the lock.
func (q *Queue) classSnapshot(c *class) ClassSnapshot {
	first := c.waiters.First().ticket
	s := ClassSnapshot{
		Demands:    slices.Clone(first.Demands),
		Tenant:     c.key.tenant,
		Waiting:    c.waiters.Len(),
		HeadWaited: time.Duration(q.now) - first.waited,
	}
	if e := c.blockedAt; e != nil {
		lq := e.limitQueue
		s.Limit, s.Key, s.BehindOther = lq.last.name, lq.key.key, lq.first() != e
		if !s.BehindOther {
			s.GrantAfter = q.grantAfter(lq)
		}
	}
	return s
}

// grantAfter returns the time until lq grants the next claim, 0 if it did not state that.
func (q *Queue) grantAfter(lq *limitQueue) time.Duration {
	if !lq.retryExact {
		return 0
	}
	return time.Duration(max(lq.retryAt-q.now, 0))
}
