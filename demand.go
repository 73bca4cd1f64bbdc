package heed

import (
	"maps"
	"slices"

	"github.com/heed-go/heed/throttle"
)

// demand puts into the ticket what the call must pass. The hook comes first, so
// that one which sets demands, rather than adding them, replaces none of ours.
func (c *call) demand() {
	t := c.t
	if t.Limits != nil {
		t.Limits(c.req, &c.ticket)
	}
	if t.Limiter != nil {
		c.ticket.Add(throttle.Demand{Limiter: t.Limiter, Cost: c.said.Cost})
	}
	if c.free() == throttle.MaxDemands {
		panic("heed: Transport.Limits: too many demands: one place is for the server's own limits; join some with throttle.AllOf")
	}
	for i := range c.ticket.Demands {
		if l := c.ticket.Demands[i].Limiter; l != nil {
			_, observes := l.(throttle.Observer)
			c.limited, c.ends = true, c.ends || observes
		}
	}
	c.tracked, c.metered = -1, 0
	c.track()
}

// track asks the Tracker for its demand, which may be another one after each
// answer, or none while nothing is known that limits the request.
func (c *call) track() {
	d := c.t.own.quota.Demand(c.req)
	switch {
	case c.tracked >= 0:
		c.ticket.Demands[c.tracked] = d
	case d.Limiter != nil:
		c.tracked = c.free()
		c.ticket.Demands[c.tracked] = d
	}
	c.limited = c.limited || d.Limiter != nil
	c.meter()
}

// meter asks the Tracker for its demands for what the request costs besides.
func (c *call) meter() {
	for i := range c.metered {
		c.ticket.Demands[c.meters[i]] = throttle.Demand{}
	}
	c.metered = 0
	if len(c.said.Costs) == 0 {
		return
	}
	for _, unit := range slices.Sorted(maps.Keys(c.said.Costs)) {
		d := c.t.own.quota.DemandUnits(c.req, unit, c.said.Costs[unit])
		if d.Limiter == nil {
			continue
		}
		i := c.free()
		if i == throttle.MaxDemands || c.tracked < 0 && i == throttle.MaxDemands-1 {
			panic("heed: Request.Costs: more units than there are places for demands: Transport.Limits and Limiter have the others")
		}
		c.ticket.Demands[i] = d
		c.meters[c.metered], c.metered, c.limited = i, c.metered+1, true
	}
}

// free returns the first place in the ticket without a demand; MaxDemands: none.
func (c *call) free() (i int) {
	for i < throttle.MaxDemands && c.ticket.Demands[i].Limiter != nil {
		i++
	}
	return i
}

// quota returns the Tracker's demand.
func (c *call) quota() throttle.Demand {
	if c.tracked < 0 {
		return throttle.Demand{}
	}
	return c.ticket.Demands[c.tracked]
}
