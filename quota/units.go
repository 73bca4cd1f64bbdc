package quota

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/throttle"
)

// A unitQuota is the throttle.Limiter of claims whose cost in a unit is known. A quota has one for each
// unit, other than requests, for which the program calls Tracker.DemandUnits, such as the tokens of a
// language model. Requests whose cost is not known do not wait for it.
type unitQuota struct {
	endpoint *endpoint
	policy   string // Decision.Policy

	mu sync.Mutex // guards the fields of model.Units
	model.Units
}

const maxUnits = 8 // units of one quota

// DemandUnits returns the limit that must admit req because it takes n of a unit that the
// server counts in addition to requests, such as "tokens" or "points". The name of the unit is
// that of [headers.Limit.Unit]. Units that the server does not report are not limited. The
// Demand has no Limiter if n is less than 1.
func (t *Tracker) DemandUnits(req *http.Request, unit string, n int64) throttle.Demand {
	if n < 1 || t.Mode == Disabled {
		return throttle.Demand{}
	}
	u := t.endpointOf(req).quotaOf(req).inUnit(unit)
	if u == nil {
		return throttle.Demand{}
	}
	return throttle.Demand{Limiter: u, Cost: n}
}

// inUnit returns the part of q that is counted in unit; nil if there are too many.
func (q *quota) inUnit(unit string) *unitQuota {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, u := range q.units {
		if u.Unit == unit {
			return u
		}
	}
	if len(q.units) == maxUnits || q.Dropped {
		return nil
	}
	u := &unitQuota{endpoint: q.endpoint, policy: q.endpoint.Names.Quota + " of " + unit, Units: model.Units{Account: q.Account, Unit: strings.Clone(unit)}}
	if !q.Account.Memory.Reserve(u.bytes()) {
		return nil
	}
	q.units = append(q.units, u)
	return u
}

// bytes returns the number of bytes that are reserved for u, one of quota.units, without its estimates.
func (u *unitQuota) bytes() int64 { return unitQuotaBytes + int64(len(u.Unit)+len(u.policy)) }

// Reserve implements throttle.Limiter.
func (u *unitQuota) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	if c.Now.IsZero() {
		c.Now = u.endpoint.tracker.now() // not under a lock
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := ticks.Later(c.Now, u.LastGranted)
	d := throttle.Decision{Policy: u.policy, At: now}
	u.Claim(&d, n, c.DryRun, now)
	return d, nil
}

// Report implements throttle.Limiter. The first feedback on a claim counts as its response.
func (u *unitQuota) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State != throttle.Unused && f.Now.IsZero() {
		f.Now = u.endpoint.tracker.now() // not under a lock
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	n, err := c.Units()
	switch {
	case err != nil || !d.OK:
	case f.State == throttle.Unused:
		u.InFlight.EndUnits(d.Grant, n)
	default:
		u.Responded(d.Grant, n, &f)
	}
}

// Traits implements throttle.Limiter.
func (*unitQuota) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

// applyUnits applies limits, which a response states, to the units of q. It reports whether nothing
// is left of one of them.
func (q *quota) applyUnits(limits []throttle.RemoteLimit, now time.Time) (usedUp bool) {
	for _, u := range q.units {
		u.applyStated(limits, now)
		for _, l := range limits {
			usedUp = usedUp || l.Unit == u.Unit && !l.RemainingUnknown && l.Remaining <= 0
		}
	}
	return usedUp
}

// applyStated applies limits, which the response to a request of unknown cost states.
func (u *unitQuota) applyStated(limits []throttle.RemoteLimit, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.Update(limits, 0, ticks.Later(now, u.LastGranted))
}

// usedUp is UsedUp, with u locked.
func (u *unitQuota) usedUp(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.UsedUp(now)
}

// drop removes all estimates, see dropEstimates.
func (u *unitQuota) drop() (bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.DropEstimates()
}
