package quota

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/throttle"
)

// A quota is one quota of a server, as a throttle.Limiter: a model of its limits, with what connects it to
// the requests of its endpoint.
type quota struct {
	endpoint *endpoint
	named    bool                       // its route is a quota name, see WithName; guarded by endpoint.mu
	small    atomic.Pointer[smallQuota] // admits claims in its place; nil: none

	mu sync.Mutex // guards the fields below; locked after endpoint.mu, and before that of units
	model.Quota
	units  []*unitQuota // limits in other units
	shared *sharedState // nil: there is no Tracker.Exchange
}

// newQuota returns a quota of ep that has the number of successful responses and, apart from a
// declared limit, knows nothing. Its memory is reserved when it is added to ep.quotas.
func (ep *endpoint) newQuota(successes int) *quota {
	q := &quota{endpoint: ep, Quota: model.Quota{Units: model.Units{Account: &ep.Account}, SlowStart: concurrency.SlowStart{Successes: successes}}}
	if ep.tracker.sharing != nil {
		q.shared = new(sharedState)
		q.Peers = &q.shared.peers
	}
	if all := ep.tracker.declared.Load(); all != nil {
		if l, ok := (*all)[ep.host]; ok {
			q.Declare(l)
		}
	}
	return q
}

// Reserve implements throttle.Limiter. The Wait of a claim that is not granted is 0 if the decision
// can only change with a response. A dry run changes nothing. A quota that is shared leaves units to
// other processes, and publishes its probes.
func (q *quota) Reserve(ctx context.Context, c throttle.Claim) (d throttle.Decision, err error) {
	if small := q.small.Load(); small != nil {
		return small.Reserve(ctx, c)
	}
	n, err := c.Units()
	if err != nil {
		return d, err
	}
	t, shared := q.endpoint.tracker, q.endpoint.id != ""
	if c.Now.IsZero() {
		c.Now = t.now() // not under a lock
	}
	var probe *Update // nil: there is none
	q.mu.Lock()
	defer func() {
		if q.mu.Unlock(); probe != nil {
			t.sharing.publish(q.endpoint, *probe)
		}
	}()
	now := ticks.Later(c.Now, q.LastGranted)
	d.At = now
	if l := t.listeners.Load(); l != nil && !c.DryRun && q.ChangesWithTime(now) {
		defer l.watch(q, now)()
	}
	if q.Claim(&d, n, c.DryRun, now); shared && d.OK && !c.DryRun {
		probe = q.newProbe(d.Grant)
	}
	return d, nil
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (*quota) NonBlocking() bool { return true }

// change calls f with q locked, and records the events for what f has changed. The time of f is now,
// but never before the latest granted claim.
func (q *quota) change(now time.Time, f func(now time.Time)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now = ticks.Later(now, q.LastGranted)
	if l := q.endpoint.tracker.listeners.Load(); l != nil {
		defer l.watch(q, now)()
	}
	f(now)
}

// Cancel implements throttle.Limiter: the request of claim c was not sent.
func (q *quota) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if small := q.small.Load(); small != nil {
		small.Cancel(ctx, c, d)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n, err := c.Units(); err == nil && d.OK {
		q.Canceled(d.Grant, n)
	}
}

// Observe implements throttle.Observer. The first feedback on a claim counts as its response.
func (q *quota) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if small := q.small.Load(); small != nil {
		small.Observe(ctx, c, d, f)
		return
	}
	t := q.endpoint.tracker
	if f.Now.IsZero() {
		f.Now = t.now() // not under a lock
	}
	q.change(f.Now, func(now time.Time) {
		if !d.OK || !q.InFlight.End(d.Grant) {
			return
		}
		usedUp := len(q.units) > 0 && f.Cause != throttle.CauseOtherQuota && q.applyUnits(f.RemoteLimits, now)
		if known := q.Responded(d.Grant, &f, usedUp, now); known && !q.endpoint.hasQuotas.Load() {
			q.endpoint.unlimited.Store(true)
		}
	})
	if l := t.listeners.Load(); l != nil {
		l.deliver()
	}
	if q.endpoint.id != "" {
		q.publish(f.Now)
	}
}

// applyStated applies limits, which the response to a request that another quota granted states.
func (q *quota) applyStated(limits []throttle.RemoteLimit, now time.Time) {
	q.change(now, func(now time.Time) {
		q.Update(limits, 0, now)
		q.applyUnits(limits, now)
	})
}

// The following are methods of model.Quota, with q locked.

func (q *quota) matches(limits []throttle.RemoteLimit, reordered int64, now time.Time) (may, shown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.Quota.Matches(limits, reordered, now)
}

func (q *quota) statesSame(limits []throttle.RemoteLimit, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.Quota.StatesSame(limits, now)
}

func (q *quota) statesOther(limits []throttle.RemoteLimit) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.Quota.StatesOther(limits)
}

func (q *quota) isHeld(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.Quota.IsHeld(now)
}

func (q *quota) isBlank() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.units) == 0 && q.Quota.IsBlank()
}

func (q *quota) lastUse(now time.Time) (at time.Time, idle bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.Quota.LastUse(now)
}
