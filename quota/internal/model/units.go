package model

import (
	"strings"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A Units is what a server states of a quota in one unit.
//
//	received: 1000 tokens left     in flight: 400 + 300     free: 300
//	├───────────────┬───────────┼───────────┤
//	      400            300         300         a claim of 500 waits
//
// When too few units are free, claims wait for the reset, or for as long as the units were measured
// to take to come back. Then one claim is granted as a probe: its response states what is left.
type Units struct {
	Account *Account
	Unit    string // empty: requests

	InFlight    inflight.Claims        // its open counts units
	Estimates   []statedlimit.Estimate // limits that the server states, at most statedlimit.MaxEstimates
	LastGranted time.Time              // latest time of a decision that granted a claim; zero: none was. No decision is made as of an earlier time
	Dropped     bool                   // there is no memory for it: it stores nothing
}

// Claim decides on a claim of n units as of now, and grants it unless it is a dry run.
func (u *Units) Claim(d *throttle.Decision, n int64, dryRun bool, now time.Time) {
	d.OK = true
	for i := range u.Estimates {
		e := &u.Estimates[i]
		d.Limit, d.Remaining, d.ResetAfter = max(e.Limit, 1), max(e.Left(now)-u.InFlight.Open, 0), max(e.Reset.Sub(now), 0)
		if d.Wait, d.OK = u.check(e, n, now); !d.OK {
			d.ServerImposed = true
			return
		}
	}
	if dryRun {
		return
	}
	for i := range u.Estimates {
		if e := &u.Estimates[i]; !e.Probe && !now.Before(e.Reset) && u.free(e, now) < n {
			e.Probe, e.LastSent = true, u.InFlight.Sent
		}
	}
	d.Grant = u.InFlight.Add()
	u.InFlight.Open += n - 1
	u.LastGranted = now
}

// check reports whether e admits n units as of now. If not, wait is the time until it may; 0: when
// a response arrives. A claim of more than the limit is admitted when the limit is.
func (u *Units) check(e *statedlimit.Estimate, n int64, now time.Time) (wait time.Duration, ok bool) {
	f, free := &u.InFlight, u.free(e, now)
	n = min(n, max(e.Limit-u.Account.Pacing.Reserved(e.Limit), 1))
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
func (u *Units) free(e *statedlimit.Estimate, now time.Time) int64 {
	return e.Left(now) - u.InFlight.Open - u.Account.Pacing.Reserved(e.Limit)
}

// Responded applies f, the response to claim k of n units.
func (u *Units) Responded(k uint64, n int64, f *throttle.Feedback) {
	if !u.InFlight.EndUnits(k, n) {
		return
	}
	if f.Outcome == throttle.Accepted {
		for i := range u.Estimates {
			u.Estimates[i].Used(n)
		}
	}
	stated := u.Update(f.RemoteLimits, k, ticks.Later(f.Now, u.LastGranted))
	for i := len(u.Estimates) - 1; i >= 0; i-- {
		e := &u.Estimates[i]
		switch {
		case stated[i] || f.Outcome == throttle.Failed:
		case !e.Probe:
			e.Remaining = max(e.Remaining-n, 0)
		case k > e.LastSent: // not even the response to the probe states the limit
			u.remove(i)
		}
	}
}

// Update applies limits, which the response to claim k states. It returns which estimates they
// concern.
func (u *Units) Update(limits []throttle.RemoteLimit, k uint64, now time.Time) (stated [statedlimit.MaxEstimates]bool) {
	for _, l := range limits {
		if i := u.find(l, now); i >= 0 {
			stated[i] = true
			u.Estimates[i].Update(l, k, now, &u.InFlight)
		}
	}
	return stated
}

// counts reports whether l states how many units of u are left.
func (u *Units) counts(l throttle.RemoteLimit) bool {
	if u.Unit == "" {
		return statedlimit.CountsRequests(l)
	}
	return l.Unit == u.Unit && !l.RemainingUnknown
}

// estimateOf returns the index of the estimate of l, -1 if there is none. Of several with the name and the window of l, it
// is the one of its size, or else the last.
func (u *Units) estimateOf(l throttle.RemoteLimit) int {
	i := -1
	for k := range u.Estimates {
		if e := &u.Estimates[k]; u.counts(l) && e.Name == l.Name && e.Per == l.Per {
			if i = k; l.Limit == e.Limit {
				break
			}
		}
	}
	return i
}

// find returns the index of the estimate of l, which may be new; -1 if there is no memory for it, or
// if l counts another unit.
func (u *Units) find(l throttle.RemoteLimit, now time.Time) int {
	weighted := u.Unit != ""
	i := u.estimateOf(l)
	if i >= 0 && (weighted || l.Limit == u.Estimates[i].Limit || !u.Estimates[i].IsOtherWindow(l, now)) {
		return i
	}
	if u.Dropped || !u.counts(l) {
		return -1
	}
	if !u.addEstimate(statedlimit.NewEstimate(l, weighted)) {
		return -1
	}
	return len(u.Estimates) - 1
}

// addEstimate adds e. Its name is copied, because it refers to the whole header field. addEstimate reports
// false if there are too many estimates, or no memory.
func (u *Units) addEstimate(e statedlimit.Estimate) bool {
	if len(u.Estimates) == statedlimit.MaxEstimates || !u.Account.Memory.Reserve(EstimateBytes+int64(len(e.Name))) {
		return false
	}
	e.Name = strings.Clone(e.Name)
	grown := make([]statedlimit.Estimate, len(u.Estimates)+1) // append would allocate more
	copy(grown, u.Estimates)
	grown[len(u.Estimates)] = e
	u.Estimates = grown
	return true
}

// remove removes the estimate with index i.
func (u *Units) remove(i int) {
	u.Account.Memory.Release(bytesOf(u.Estimates[i : i+1]))
	u.Estimates = append(u.Estimates[:i], u.Estimates[i+1:]...)
}

// DropEstimates removes all estimates, and prevents that there are new ones. It returns the number of bytes
// that were reserved for them.
func (u *Units) DropEstimates() (bytes int64) {
	bytes = bytesOf(u.Estimates)
	u.Estimates, u.Dropped = nil, true
	return bytes
}
