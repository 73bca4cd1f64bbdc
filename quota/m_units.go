package quota

import (
	"strings"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A modelUnits is what a server states of a quota in one unit.
//
//	received: 1000 tokens left     in flight: 400 + 300     free: 300
//	├───────────────┬───────────┼───────────┤
//	      400            300         300         a claim of 500 waits
//
// When too few units are free, claims wait for the reset, or for as long as the units were measured
// to take to come back. Then one claim is granted as a probe: its response states what is left.
type modelUnits struct {
	account *modelAccount
	unit    string // empty: requests

	inFlight    inflight.Claims        // its open counts units
	estimates   []statedlimit.Estimate // limits that the server states, at most statedlimit.MaxEstimates
	lastGranted time.Time              // latest time of a decision that granted a claim; zero: none was. No decision is made as of an earlier time
	dropped     bool                   // the endpoint has no memory for it: it stores nothing
}

// claim decides on a claim of n units as of now, and grants it unless it is a dry run.
func (u *modelUnits) claim(d *throttle.Decision, n int64, dryRun bool, now time.Time) {
	d.OK = true
	for i := range u.estimates {
		e := &u.estimates[i]
		d.Limit, d.Remaining, d.ResetAfter = max(e.Limit, 1), max(e.Left(now)-u.inFlight.Open, 0), max(e.Reset.Sub(now), 0)
		if d.Wait, d.OK = u.check(e, n, now); !d.OK {
			d.ServerImposed = true
			return
		}
	}
	if dryRun {
		return
	}
	for i := range u.estimates {
		if e := &u.estimates[i]; !e.Probe && !now.Before(e.Reset) && u.free(e, now) < n {
			e.Probe, e.LastSent = true, u.inFlight.Sent
		}
	}
	d.Grant = u.inFlight.Add()
	u.inFlight.Open += n - 1
	u.lastGranted = now
}

// check reports whether e admits n units as of now. If not, wait is the time until it may; 0: when
// a response arrives. A claim of more than the limit is admitted when the limit is.
func (u *modelUnits) check(e *statedlimit.Estimate, n int64, now time.Time) (wait time.Duration, ok bool) {
	f, free := &u.inFlight, u.free(e, now)
	n = min(n, max(e.Limit-u.account.Pacing.Reserved(e.Limit), 1))
	switch {
	case e.Probe:
		return 0, f.After(e.LastSent) == 0
	case free >= n:
		return 0, true
	case !now.Before(e.Reset):
		return 0, f.Open == 0 || e.Left(now) <= f.Open
	}
	wait = e.Reset.Sub(now)
	if refill := e.UntilFree(free-n+1, now); refill > 0 {
		wait = min(wait, refill)
	}
	return wait, false
}

// free returns how many units of e are neither in flight nor reserved for other clients.
func (u *modelUnits) free(e *statedlimit.Estimate, now time.Time) int64 {
	return e.Left(now) - u.inFlight.Open - u.account.Pacing.Reserved(e.Limit)
}

// responded applies f, the response to claim k of n units.
func (u *modelUnits) responded(k uint64, n int64, f *throttle.Feedback) {
	if !u.inFlight.EndUnits(k, n) {
		return
	}
	if f.Outcome == throttle.Accepted {
		for i := range u.estimates {
			u.estimates[i].AddResponses(n)
		}
	}
	stated := u.update(f.RemoteLimits, k, ticks.Later(f.Now, u.lastGranted))
	for i := len(u.estimates) - 1; i >= 0; i-- {
		e := &u.estimates[i]
		switch {
		case stated[i] || f.Outcome == throttle.Failed:
		case !e.Probe:
			e.Remaining = max(e.Remaining-n, 0)
		case k > e.LastSent: // not even the response to the probe states the limit
			u.remove(i)
		}
	}
}

// update applies limits, which the response to claim k states. It returns which estimates they
// concern.
func (u *modelUnits) update(limits []throttle.RemoteLimit, k uint64, now time.Time) (stated [statedlimit.MaxEstimates]bool) {
	for _, l := range limits {
		if i := u.find(l, now); i >= 0 {
			stated[i] = true
			u.updateEstimate(&u.estimates[i], l, k, now)
		}
	}
	return stated
}

// counts reports whether l states how many units of u are left.
func (u *modelUnits) counts(l throttle.RemoteLimit) bool {
	if u.unit == "" {
		return statedlimit.CountsRequests(l)
	}
	return l.Unit == u.unit && !l.RemainingUnknown
}

// estimateOf returns the index of the estimate of l, and l in requests. The index is -1 if there is
// none. Of several with the name and the window of l, it is the one of its size, or else the last.
func (u *modelUnits) estimateOf(l throttle.RemoteLimit) (i int, inRequests throttle.RemoteLimit) {
	i = -1
	for k := range u.estimates {
		if e := &u.estimates[k]; u.counts(l) && e.Name == l.Name && e.Per == l.Per {
			i, inRequests = k, e.InRequests(l)
			if inRequests.Limit == e.Limit {
				break
			}
		}
	}
	return i, inRequests
}

// find returns the index of the estimate of l, which may be new; -1 if there is no memory for it, or
// if l counts another unit.
func (u *modelUnits) find(l throttle.RemoteLimit, now time.Time) int {
	weighted := u.unit != ""
	i, own := u.estimateOf(l)
	if i >= 0 && (weighted || own.Limit == u.estimates[i].Limit || !u.estimates[i].IsOtherWindow(l, now)) {
		return i
	}
	if u.dropped || !u.counts(l) {
		return -1
	}
	if !u.addEstimate(statedlimit.NewEstimate(l, weighted)) {
		return -1
	}
	return len(u.estimates) - 1
}

// addEstimate adds e. Its name is copied, because it refers to the whole header field. addEstimate reports
// false if there are too many estimates, or no memory.
func (u *modelUnits) addEstimate(e statedlimit.Estimate) bool {
	if len(u.estimates) == statedlimit.MaxEstimates || !u.account.memory.Reserve(estimateBytes+int64(len(e.Name))) {
		return false
	}
	e.Name = strings.Clone(e.Name)
	grown := make([]statedlimit.Estimate, len(u.estimates)+1) // append would allocate more
	copy(grown, u.estimates)
	grown[len(u.estimates)] = e
	u.estimates = grown
	return true
}

// updateEstimate applies l, which the response to claim k states, to e.
func (u *modelUnits) updateEstimate(e *statedlimit.Estimate, l throttle.RemoteLimit, k uint64, now time.Time) {
	hadLog := e.HasLog()
	e.Update(l, k, now, &u.inFlight)
	u.reserveLog(e, hadLog)
}

// reserveLog accounts for the memory of a new or dropped log of e, which was updated. hadLog reports
// whether it had one before. Without memory there is no log.
func (u *modelUnits) reserveLog(e *statedlimit.Estimate, hadLog bool) {
	switch {
	case hadLog && !e.HasLog():
		u.account.memory.Release(statedlimit.LogBytes)
	case !hadLog && e.HasLog() && !u.account.memory.Reserve(statedlimit.LogBytes):
		e.DropLog()
	}
}

// remove removes the estimate with index i.
func (u *modelUnits) remove(i int) {
	u.account.memory.Release(bytesOf(u.estimates[i : i+1]))
	u.estimates = append(u.estimates[:i], u.estimates[i+1:]...)
}

// dropEstimates removes all estimates, and prevents that there are new ones. It returns the number of bytes
// that were reserved for them.
func (u *modelUnits) dropEstimates() (bytes int64) {
	bytes = bytesOf(u.estimates)
	u.estimates, u.dropped = nil, true
	return bytes
}
