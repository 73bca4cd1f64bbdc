package queue

import (
	"math/bits"

	"github.com/heed-go/heed/internal/indexheap"
	"github.com/heed-go/heed/internal/ticks"
)

// A tenantQueue is one tenant of a limitQueue, and its classes that wait there. It exists while
// a class of the tenant needs the limit.
//
// Tenants share a limit by self-clocked fair queueing (Golestani, INFOCOM 1994). The first
// claim of each tenant has a finish tag, in units divided by the weight of the claim:
//
//	finish = start + units/weight
//
// The tenant with the lowest finish tag is granted first. The highest finish tag that was granted is the virtual time.
// The start of a tenant that waits is the finish tag of its last grant, and that of a new tenant is the virtual time.
// While a tenant waits its start is therefore behind the virtual time by its own largest claim at most, so two tenants
// that wait during the same time differ by one such claim of each. Each grant to a new tenant moves the virtual time
// towards the finish tag of one that waits, so that new tenants cannot hold it back.
type tenantQueue struct {
	start      tag
	finish     tag // of its first claim while it waits here
	entries    indexheap.Heap[*queueEntry, byHeadWaiter]
	index      int // in limitQueue.tenants, or -1
	numClasses int // classes of the tenant that need the limit
}

// A tag is an instant of virtual time.
type tag struct {
	units    int64
	fraction uint64 // in 1/2^64 units
}

// maxTag bounds the units of a claim that count for its tenant, and the virtual time, see rebase.
const maxTag = 1 << 61

// shareOf returns units divided by weight.
func shareOf(units, weight int64) tag {
	units, weight = min(units, maxTag), max(weight, 1)
	fraction, _ := bits.Div64(uint64(units%weight), 0, uint64(weight))
	return tag{units / weight, fraction}
}

func (a tag) before(b tag) bool {
	return a.units < b.units || a.units == b.units && a.fraction < b.fraction
}

func (a tag) plus(b tag) tag {
	fraction, carry := bits.Add64(a.fraction, b.fraction, 0)
	return tag{a.units + b.units + int64(carry), fraction}
}

func (a tag) minus(b tag) tag {
	fraction, borrow := bits.Sub64(a.fraction, b.fraction, 0)
	return tag{a.units - b.units - int64(borrow), fraction}
}

func later(a, b tag) tag {
	if a.before(b) {
		return b
	}
	return a
}

// byFinish orders tenants by their finish tags, and those with equal ones by their first waiters.
type byFinish struct{}

func (byFinish) Less(a, b *tenantQueue) bool {
	return a.finish.before(b.finish) || a.finish == b.finish && byHeadWaiter{}.Less(a.entries.First(), b.entries.First())
}
func (byFinish) SetIndex(tq *tenantQueue, i int) { tq.index = i }

// tenantFor returns the tenantQueue for another class of the tenant.
func (lq *limitQueue) tenantFor(name string) *tenantQueue {
	tq := &lq.defaultTenant
	if name != "" {
		tq = lq.byTenant[name]
	}
	if tq == nil {
		tq = new(tenantQueue)
		if lq.byTenant == nil {
			lq.byTenant = make(map[string]*tenantQueue)
		}
		lq.byTenant[name] = tq
	}
	if tq.numClasses++; tq.numClasses == 1 {
		tq.index, tq.start = -1, lq.virtualTime
	}
	return tq
}

// leave removes the tenant of e if its class was the last one of the tenant.
func (lq *limitQueue) leave(e *queueEntry) {
	if e.tenantQueue.numClasses--; e.tenantQueue.numClasses == 0 {
		delete(lq.byTenant, e.class.key.tenant)
	}
	if len(lq.byTenant) == 0 {
		lq.byTenant = nil // release the memory: a map does not shrink
	}
}

// share returns the units that the ticket of a waiter of the class of e needs of the limit, divided by its weight.
func (e *queueEntry) share(t *Ticket) tag { return shareOf(e.units(t), int64(t.Weight)) }

// startFor returns the start of the tenant for a claim of the given share. A tenant that has waited elsewhere, for
// another limit that its claim needs, goes first when it returns late, but has earned no further claim.
func (lq *limitQueue) startFor(tq *tenantQueue, share tag) tag {
	if tq.index >= 0 {
		return tq.start
	}
	return later(tq.start, lq.virtualTime.minus(share))
}

// fix restores the position of the tenant after its first claim or its start has changed.
func (lq *limitQueue) fix(tq *tenantQueue) {
	first := tq.entries.First()
	tq.finish = tq.start.plus(first.share(first.class.waiters.First().ticket))
	if tq.index < 0 {
		lq.tenants.Push(tq)
	} else {
		lq.tenants.Fix(tq.index)
	}
}

// charge records that the limit of e has granted a claim of the given share.
func (q *Queue) charge(e *queueEntry, share tag) {
	lq, tq, first := e.limitQueue, e.tenantQueue, e.limitQueue.first()
	if lq.granted++; lq.granted > 1 {
		lq.grantInterval += (ticks.Sub(q.now, lq.lastGrant) - lq.grantInterval) / 8
	}
	lq.lastGrant = q.now
	tq.start = lq.startFor(tq, share).plus(share)
	lq.virtualTime = later(lq.virtualTime, tq.start)
	if lq.virtualTime.units >= maxTag {
		lq.rebase()
	}
	if tq.index >= 0 {
		lq.fix(tq)
	}
	q.scheduleFirst(lq, first)
}

// rebase subtracts the virtual time from all tags, so that they never overflow.
func (lq *limitQueue) rebase() {
	rebase := func(tq *tenantQueue) {
		tq.start = later(tq.start.minus(lq.virtualTime), tag{units: -maxTag})
		tq.finish = tq.finish.minus(lq.virtualTime)
	}
	rebase(&lq.defaultTenant)
	for _, tq := range lq.byTenant {
		rebase(tq)
	}
	lq.virtualTime = tag{}
}

// mustYield reports whether another class that waits at the limit of e goes before e.
func (e *queueEntry) mustYield() bool {
	lq, tq, first := e.limitQueue, e.tenantQueue, e.limitQueue.first()
	switch {
	case first == nil || first == e:
		return false
	case tq.index >= 0 && byHeadWaiter{}.Less(tq.entries.First(), e):
		return true
	case first.tenantQueue == tq:
		return false
	}
	share := e.share(e.class.waiters.First().ticket)
	finish := lq.startFor(tq, share).plus(share)
	return first.tenantQueue.finish.before(finish) || first.tenantQueue.finish == finish && byHeadWaiter{}.Less(first, e)
}
