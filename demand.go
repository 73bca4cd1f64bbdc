package heed

import (
	"maps"
	"slices"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// Why a ticket cannot hold all demands of a request.
const (
	errTooManyDemands = invalidRequestError("heed: Transport.Limits set too many demands: one slot of the ticket is reserved for the server's limits, and one for Transport.Limiter; join some with throttle.AllOf")
	errTooManyUnits   = invalidRequestError("heed: RequestOptions.Costs names more units than the ticket has slots for, beside the demands of Transport.Limits and Transport.Limiter")
)

// addDemands puts into the ticket what the call must pass. The Limits hook is called
// first, so that a hook that assigns demands instead of adding them replaces none
// of ours. The error says that the ticket has too few places.
func (rt *roundTrip) addDemands() error {
	t := rt.t
	if t.Limits != nil {
		t.Limits(rt.req, &rt.ticket)
	}
	if t.Limiter != nil {
		if rt.freeSlot() == queue.MaxDemands {
			return errTooManyDemands
		}
		rt.ticket.Add(throttle.Demand{Limiter: t.Limiter, Cost: rt.opts.Cost})
	}
	if rt.freeSlot() == queue.MaxDemands {
		return errTooManyDemands
	}
	for i := range rt.ticket.Demands {
		rt.hasConfiguredLimits = rt.hasConfiguredLimits || rt.ticket.Demands[i].Limiter != nil
	}
	rt.hasDemands = rt.hasConfiguredLimits
	rt.quotaSlot, rt.unitCount = -1, 0
	return rt.addQuotaDemand()
}

// addQuotaDemand asks the Tracker for its demand, which may be another one after each
// response, or none while nothing is known that limits the request. The error is
// errTooManyUnits.
func (rt *roundTrip) addQuotaDemand() error {
	d := rt.t.resolved.quota.Demand(rt.req)
	if rt.quotaSlot < 0 && d.Limiter != nil {
		rt.quotaSlot = rt.freeSlot()
	}
	if rt.quotaSlot >= 0 {
		rt.ticket.Demands[rt.quotaSlot] = d
	}
	if d.Limiter == nil {
		rt.quotaSlot = -1 // its place may be taken for a unit of Costs
	} else {
		rt.hasDemands = true
	}
	return rt.addUnitDemands()
}

// addUnitDemands asks the Tracker for its demands for the units of RequestOptions.Costs. The error
// is errTooManyUnits.
func (rt *roundTrip) addUnitDemands() error {
	for i := range rt.unitCount {
		rt.ticket.Demands[rt.unitSlots[i]] = throttle.Demand{}
	}
	rt.unitCount = 0
	if len(rt.opts.Costs) == 0 {
		return nil
	}
	for _, unit := range slices.Sorted(maps.Keys(rt.opts.Costs)) {
		d := rt.t.resolved.quota.DemandUnits(rt.req, unit, rt.opts.Costs[unit])
		if d.Limiter == nil {
			continue
		}
		i := rt.freeSlot()
		if i == queue.MaxDemands || rt.quotaSlot < 0 && i == queue.MaxDemands-1 {
			return errTooManyUnits
		}
		rt.ticket.Demands[i] = d
		rt.unitSlots[rt.unitCount], rt.unitCount, rt.hasDemands = i, rt.unitCount+1, true
	}
	return nil
}

// freeSlot returns the first place in the ticket without a demand; MaxDemands: none.
func (rt *roundTrip) freeSlot() (i int) {
	for i < queue.MaxDemands && rt.ticket.Demands[i].Limiter != nil {
		i++
	}
	return i
}

// quotaDemand returns the Tracker's demand.
func (rt *roundTrip) quotaDemand() throttle.Demand {
	if rt.quotaSlot < 0 {
		return throttle.Demand{}
	}
	return rt.ticket.Demands[rt.quotaSlot]
}
