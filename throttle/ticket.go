package throttle

import (
	"context"
	"time"
)

// A Demand is one limit that a ticket must pass.
type Demand struct {
	Limiter Limiter // nil: none
	Key     string  // Claim.Key
	Cost    int64   // Claim.Cost
}

// MaxDemands is how many limits one ticket can pass. Use AllOf for more.
const MaxDemands = 4

// A Ticket asks for units of several limits at one instant: all of them, or none.
// The zero Ticket demands nothing and is granted.
//
// A Ticket is used by one goroutine at a time. After it was granted it ends in
// one Cancel or one Observe without Feedback.More; then it may be used again.
// Used again with the same demands it keeps its place in line: a retry is
// served before those who came later.
type Ticket struct {
	Demands  [MaxDemands]Demand
	Priority int // higher goes first

	turn    uint64 // place in line; 0: none yet
	granted *[MaxDemands]Decision
}

// Add adds a demand. It panics if the ticket has MaxDemands already.
func (t *Ticket) Add(d Demand) {
	for i := range t.Demands {
		if t.Demands[i].Limiter == nil {
			t.Demands[i] = d
			return
		}
	}
	panic("throttle: Ticket.Add: more than MaxDemands demands: join some of them with AllOf")
}

// Decision returns what the limiter of Demands[i] decided when t was granted.
// It is false while t holds no grant.
func (t *Ticket) Decision(i int) (Decision, bool) {
	if t.granted == nil || t.Demands[i].Limiter == nil {
		return Decision{}, false
	}
	return t.granted[i], true
}

// Reserve asks for all demands as of now; a zero now is read by the first
// limiter. It returns the decision of the first limit that refused, or OK. What
// others had granted by then is given back.
func (t *Ticket) Reserve(ctx context.Context, now time.Time) (Decision, error) {
	all := Decision{OK: true, At: now}
	var ds [MaxDemands]Decision
	for i, m := range t.Demands {
		if m.Limiter == nil {
			continue
		}
		d, err := m.Limiter.Reserve(ctx, Claim{Key: m.Key, Cost: m.Cost, Now: now})
		if err != nil || !d.OK {
			for j, m := range t.Demands[:i] {
				if m.Limiter != nil {
					m.Limiter.Cancel(ctx, Claim{Key: m.Key, Cost: m.Cost, Now: now}, ds[j])
				}
			}
			return d, err
		}
		ds[i], all.At, now = d, d.At, d.At
	}
	t.granted = &ds
	return all, nil
}

// Cancel gives back the units of a granted ticket that was not used, as of now.
func (t *Ticket) Cancel(ctx context.Context, now time.Time) {
	if t.granted == nil {
		return
	}
	for i, m := range t.Demands {
		if m.Limiter != nil {
			m.Limiter.Cancel(ctx, Claim{Key: m.Key, Cost: m.Cost, Now: now}, t.granted[i])
		}
	}
	t.granted = nil
}

// Observe tells the limits of a granted ticket what came of it.
func (t *Ticket) Observe(ctx context.Context, f Feedback) {
	if t.granted == nil {
		return
	}
	for i, m := range t.Demands {
		if m.Limiter != nil {
			Observe(ctx, m.Limiter, Claim{Key: m.Key, Cost: m.Cost}, t.granted[i], f)
		}
	}
	if !f.More {
		t.granted = nil
	}
}
