package quota

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/ticks"
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

// newQuota returns a quota of ep that, apart from a declared limit, knows nothing. Its memory is reserved when it is
// added to ep.quotas.
func (ep *endpoint) newQuota() *quota {
	q := &quota{endpoint: ep, Quota: model.Quota{Units: model.Units{Account: &ep.Account}}}
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
	now := q.timeOf(c.Now)
	d.At = now
	if l := t.listeners.Load(); l != nil && !c.DryRun && q.ChangesWithTime() {
		defer l.record(q.reported(now), now)
	}
	claim := model.Claim{Units: n, DryRun: c.DryRun, Waits: c.Waits, GivesUp: !c.Waits && c.Waited > 0 && !c.DryRun, Waited: c.Waited, Deadline: c.Deadline}
	if q.Claim(&d, claim, now); shared && d.OK && !c.DryRun {
		probe = q.newProbe()
	}
	return d, nil
}

// change calls f with q locked, and records the events for what f has changed. The time of f is now,
// but never before the latest granted claim.
func (q *quota) change(now time.Time, f func(now time.Time)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now = q.timeOf(now)
	if l := q.endpoint.tracker.listeners.Load(); l != nil {
		defer l.record(q.reported(now), now)
	}
	f(now)
}

// timeOf returns the time of a call that was made at now: it is never before the latest granted claim, unless the clock
// was set back since. The caller holds q.mu.
func (q *quota) timeOf(now time.Time) time.Time {
	if q.LastGranted.Sub(now) > setBack {
		q.SetBack(now)
	}
	return ticks.Later(now, q.LastGranted)
}

// setBack is the time by which a call is earlier than another one only if the clock was set back.
const setBack = time.Minute

// Report implements throttle.Limiter. The first feedback on a claim that is not Unused counts as its response. The zero
// Decision means that the caller of a claim that was never granted has given up.
func (q *quota) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if small := q.small.Load(); small != nil {
		small.Report(ctx, c, d, f)
		return
	}
	if f.State == throttle.Unused {
		q.cancel(c, d)
		return
	}
	t := q.endpoint.tracker
	if f.Now.IsZero() {
		f.Now = t.now() // not under a lock
	}
	sooner := false
	q.change(f.Now, func(now time.Time) {
		if !d.OK {
			sooner = q.GaveUp(now)
			return
		}
		if !q.InFlight.End(model.Number(d.Grant)) {
			return
		}
		usedUp := len(q.units) > 0 && f.Cause != model.CauseOtherQuota && q.applyUnits(f.RemoteLimits, now)
		q.Responded(d.Grant, &f, usedUp, now)
	})
	if sooner {
		t.wake()
	}
	if l := t.listeners.Load(); l != nil {
		l.deliver()
	}
	if q.endpoint.id != "" {
		q.publish(f.Now)
	}
}

// cancel applies that the request of claim c was not sent.
func (q *quota) cancel(c throttle.Claim, d throttle.Decision) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n, err := c.Units(); err == nil && d.OK {
		q.Canceled(d.Grant, n)
	}
}

// Traits implements throttle.Limiter.
func (*quota) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
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
