package quota

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/statedlimit"
)

// A Snapshot is a copy of what a Tracker knows of the limits of servers, for a debug page or
// for metrics. It refers to nothing of the Tracker and holds no credentials.
type Snapshot struct {
	// At is the time of the Snapshot on Tracker.Clock.
	At time.Time

	// Accounts is the number of accounts that the Tracker keeps.
	Accounts int

	// Shown describes the accounts that matter most: those with a hold first, then those
	// with the smallest part of a limit left, then those used most recently.
	Shown []AccountSnapshot
}

// An AccountSnapshot describes one account at one host.
type AccountSnapshot struct {
	// Host is the canonical host of the server, with its port unless that is the default.
	Host string

	// Account distinguishes the accounts of one host. It is a number that means nothing
	// outside of the process. Empty means that the requests carry no credentials.
	Account string

	// LastUsed is when a limit of the account was last asked for a request. Zero means that
	// it is not known.
	LastUsed time.Time

	// Quotas describes the quotas of the account. It is empty if the host is known and has
	// never stated or enforced a limit.
	Quotas []QuotaSnapshot
}

// A QuotaSnapshot describes one quota of an account.
type QuotaSnapshot struct { //nolint:revive // quota.Snapshot describes all quotas
	// Name is the name of the quota as in errors: the host, with the routes that share the
	// quota if these are known.
	Name string

	// InFlight is the number of requests that were granted and have no response yet.
	InFlight int

	// Concurrency is the maximum number of requests in flight that is estimated now. Zero
	// means no maximum.
	Concurrency int

	// ConcurrencyReason is the reason for Concurrency: "slow start" or "overload".
	ConcurrencyReason string

	// Rate is the learned rate in requests per second. Zero means that there is none.
	Rate float64

	// Hold describes the hold. Nil means that there is none.
	Hold *HoldSnapshot

	// Limits describes the limits that the server states, that its rejections show, or that
	// the program declared.
	Limits []LimitSnapshot
}

// A HoldSnapshot describes a hold: requests wait until its end, and single ones test it.
type HoldSnapshot struct {
	// Reason is the reason for the hold, as in errors: "retry-after", "quota" or "learned rate".
	Reason string

	// Since is when the latest response that caused the hold was received.
	Since time.Time

	// Until is the end of the hold if the server stated it, and otherwise when the next probe may be
	// sent. It is in the past while a probe is due or in flight.
	Until time.Time

	// Estimated is set if the server did not state the hold.
	Estimated bool

	// Probe is set while the response to a probe is awaited, a request that tests the hold.
	Probe bool
}

// A LimitSnapshot describes one limit of a quota.
type LimitSnapshot struct {
	// Name is the server's name of the limit. Empty means that the server states none.
	Name string

	// Unit is what the limit counts, such as "requests", "tokens" or "concurrent_requests".
	Unit string

	// Size is the number of units in a window. Zero means that it is not known.
	Size int64

	// Remaining is the number of units that are left, less those of requests in flight.
	Remaining int64

	// RemainingKnown is set if Remaining is known.
	RemainingKnown bool

	// Per is the length of the window. Zero means that it is not known.
	Per time.Duration

	// Reset is when units come back. Zero means that it is not known.
	Reset time.Time

	// Learned is set if the limit was inferred from rejections. If neither Learned nor Declared
	// is set, the server states it.
	Learned bool

	// Declared is set if the program stated the limit with Tracker.Declare. Size is less than
	// declared after a rejection that came before the limit was used up.
	Declared bool
}

const defaultShown = 100 // accounts that Snapshot shows by default

// Snapshot returns what t knows of the limits of servers. It shows at most maxAccounts
// accounts; zero or less means 100. It visits all accounts and locks one of them at a time,
// so it must not be called for each request: see [Tracker.Demand].
func (t *Tracker) Snapshot(maxAccounts int) Snapshot {
	t.once.Do(t.init)
	if maxAccounts <= 0 {
		maxAccounts = defaultShown
	}
	t.mu.RLock()
	all := slices.Collect(maps.Values(t.endpoints))
	t.mu.RUnlock()
	now := t.now()
	type ranked struct {
		AccountSnapshot
		left float64
	}
	accounts := make([]*ranked, len(all))
	for i, ep := range all {
		a := ep.snapshot(now)
		accounts[i] = &ranked{a, a.left()}
	}
	slices.SortFunc(accounts, func(a, b *ranked) int {
		switch {
		case a.left != b.left:
			return cmp.Compare(a.left, b.left)
		case !a.LastUsed.Equal(b.LastUsed):
			return b.LastUsed.Compare(a.LastUsed)
		}
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Account, b.Account))
	})
	s := Snapshot{At: now, Accounts: len(all)}
	for _, a := range accounts[:min(maxAccounts, len(all))] {
		s.Shown = append(s.Shown, a.AccountSnapshot)
	}
	return s
}

// left returns the smallest part of a limit of a that is left, 1 if no limit is known, and -1 if one
// of the quotas is held.
func (a *AccountSnapshot) left() float64 {
	left := 1.0
	for i := range a.Quotas {
		q := &a.Quotas[i]
		if q.Hold != nil {
			return -1
		}
		for k := range q.Limits {
			if l := &q.Limits[k]; l.Size > 0 {
				left = min(left, float64(l.Remaining)/float64(l.Size))
			}
		}
	}
	return left
}

// snapshot describes ep as of now. Two numbers of AccountSnapshot.Account differ because the seed of
// the hashes is random.
func (ep *endpoint) snapshot(now time.Time) AccountSnapshot {
	a := AccountSnapshot{Host: ep.host}
	if ep.key != ep.hostKey {
		a.Account = fmt.Sprintf("%06x", ep.key&0xffffff)
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	all := ep.all()
	a.Quotas = ep.small.snapshots(ep.host, now)
	for _, q := range all {
		snap, last, blank := q.snapshot(now)
		a.LastUsed = ticks.Later(a.LastUsed, last)
		if !blank || snap.Concurrency > 0 {
			a.Quotas = append(a.Quotas, snap)
		}
	}
	return a
}

// snapshot describes q as of now. last is the time of the latest admission, and blank reports
// whether q knows nothing and has no request in flight.
func (q *quota) snapshot(now time.Time) (snap QuotaSnapshot, last time.Time, blank bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now = ticks.Later(now, q.LastGranted)
	snap = QuotaSnapshot{Name: q.endpoint.host, InFlight: int(q.InFlight.Count), Hold: q.holdSnapshot(now), Limits: q.limitSnapshots(now)}
	snap.Concurrency, snap.ConcurrencyReason = q.concurrency(now)
	if q.Learned != nil && q.Learned.Loop.On() {
		snap.Rate = q.Learned.Loop.Rate
	}
	blank = q.InFlight.Open == 0 && len(snap.Limits) == 0 && snap.Hold == nil && q.Learned == nil
	return snap, q.LastGranted, blank
}

// limitSnapshots describes the limits of q as of now. The caller holds q.mu.
func (q *quota) limitSnapshots(now time.Time) (all []LimitSnapshot) {
	all = unitSnapshots(&q.Units, now)
	if q.Learned != nil && q.Learned.Window.On() {
		all = append(all, learnedLimit(&q.Learned.Window, &q.InFlight, now))
	}
	for _, u := range q.units {
		u.mu.Lock()
		all = append(all, unitSnapshots(&u.Units, now)...)
		u.mu.Unlock()
	}
	return all
}

// holdSnapshot describes the hold of q as of now; nil if there is none. The caller holds q.mu.
func (q *quota) holdSnapshot(now time.Time) *HoldSnapshot {
	if h := &q.Hold; h.Held {
		reason := "retry-after"
		if h.Estimated() {
			reason = "learned rate"
		}
		return &HoldSnapshot{Reason: reason, Since: h.Latest, Until: q.holdUntil(now), Estimated: h.Estimated(), Probe: q.Testing()}
	}
	use := q.Account.Pacing
	for i := range q.Estimates {
		e := &q.Estimates[i]
		if free, _ := e.Free(now, &q.InFlight, use); free > 0 || e.CountsInFlight() || e.Left(now) > use.Reserved(e.Limit) {
			continue // it admits a request, or only waits for responses
		}
		return &HoldSnapshot{Reason: "quota", Since: e.At, Until: e.OpensAt(), Probe: e.Probe}
	}
	return nil
}

// concurrency returns the maximum number of requests in flight and its reason. Zero means that
// there is no maximum. The caller holds q.mu.
func (q *quota) concurrency(now time.Time) (n int, reason string) {
	limiter, ramp := q.Overload.Limit(), q.Ramp.Bound(now)
	if limiter > 0 && (ramp == 0 || limiter < ramp) {
		return int(limiter), "overload"
	}
	if ramp > 0 {
		return int(ramp), "slow start"
	}
	return 0, ""
}

// statedLimit describes e as of now, while the claims of f are in flight.
func statedLimit(e *statedlimit.Estimate, f *inflight.Claims, now time.Time) LimitSnapshot {
	s := LimitSnapshot{Name: e.Name, Unit: "requests", Size: e.Limit, Remaining: max(e.Left(now)-f.Open, 0), RemainingKnown: true, Per: e.Per, Reset: e.Reset}
	if e.CountsInFlight() {
		s.Unit, s.Reset = statedlimit.UnitConcurrent, time.Time{}
	}
	return s
}

// learnedLimit describes w as of now, while the claims of f are in flight.
func learnedLimit(w *learnedlimit.Window, f *inflight.Claims, now time.Time) LimitSnapshot {
	s := LimitSnapshot{Unit: "requests", Size: w.Limit, Remaining: max(w.Limit-w.Used, 0), RemainingKnown: true, Per: w.Length, Reset: w.Reset, Learned: !w.Declared, Declared: w.Declared}
	if !w.Reset.After(now) {
		s.Remaining = max(w.Limit-f.Open, 0)
	}
	return s
}

// unitSnapshots describes the limits that the server states of u, as of now.
func unitSnapshots(u *model.Units, now time.Time) (all []LimitSnapshot) {
	for i := range u.Estimates {
		if e := &u.Estimates[i]; !e.Distrusted() {
			s := statedLimit(e, &u.InFlight, now)
			s.Unit = cmp.Or(u.Unit, s.Unit)
			all = append(all, s)
		}
	}
	return all
}
