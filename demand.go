package heed

import (
	"maps"
	"slices"

	"github.com/heed-go/heed/throttle"
)

// Why a ticket cannot hold all demands of a request.
const (
	errLimits = unsendable("heed: Transport.Limits set too many demands: one place of the ticket is for the server's limits, and one for Transport.Limiter; join some with throttle.AllOf")
	errCosts  = unsendable("heed: Request.Costs names more units than the ticket has places for, beside the demands of Transport.Limits and Transport.Limiter")
)

// demand puts into the ticket what the call must pass. The Limits hook is called
// first, so that a hook that assigns demands instead of adding them replaces none
// of ours. The error says that the ticket has too few places.
func (c *call) demand() error {
	t := c.t
	if t.Limits != nil {
		t.Limits(c.req, &c.ticket)
	}
	if t.Limiter != nil {
		if c.free() == throttle.MaxDemands {
			return errLimits
		}
		c.ticket.Add(throttle.Demand{Limiter: t.Limiter, Cost: c.said.Cost})
	}
	if c.free() == throttle.MaxDemands {
		return errLimits
	}
	for i := range c.ticket.Demands {
		c.foreign = c.foreign || c.ticket.Demands[i].Limiter != nil
	}
	c.limited = c.foreign
	c.tracked, c.metered = -1, 0
	return c.track()
}

// track asks the Tracker for its demand, which may be another one after each
// response, or none while nothing is known that limits the request. The error is
// errCosts.
func (c *call) track() error {
	d := c.t.own.quota.Demand(c.req)
	if c.tracked < 0 && d.Limiter != nil {
		c.tracked = c.free()
	}
	if c.tracked >= 0 {
		c.ticket.Demands[c.tracked] = d
	}
	if d.Limiter == nil {
		c.tracked = -1 // its place may be taken for a unit of Costs
	} else {
		c.limited = true
	}
	return c.meter()
}

// meter asks the Tracker for its demands for the units of Request.Costs. The error
// is errCosts.
func (c *call) meter() error {
	for i := range c.metered {
		c.ticket.Demands[c.meters[i]] = throttle.Demand{}
	}
	c.metered = 0
	if len(c.said.Costs) == 0 {
		return nil
	}
	for _, unit := range slices.Sorted(maps.Keys(c.said.Costs)) {
		d := c.t.own.quota.DemandUnits(c.req, unit, c.said.Costs[unit])
		if d.Limiter == nil {
			continue
		}
		i := c.free()
		if i == throttle.MaxDemands || c.tracked < 0 && i == throttle.MaxDemands-1 {
			return errCosts
		}
		c.ticket.Demands[i] = d
		c.meters[c.metered], c.metered, c.limited = i, c.metered+1, true
	}
	return nil
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
