package quota

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
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

	// ConcurrencyReason is the reason for Concurrency: "slow start" or "slow responses".
	ConcurrencyReason string

	// Rate is the learned rate in requests per second. Zero means that there is none.
	Rate float64

	// Hold describes the hold. Nil means that there is none.
	Hold *HoldSnapshot

	// Limits describes the limits that the server states, that its rejections show, or that
	// the program declared.
	Limits []LimitSnapshot
}

// A HoldSnapshot describes a hold: no requests are sent until its end.
type HoldSnapshot struct {
	// Reason is the reason for the hold, as in errors: "retry-after", "quota", "learned rate"
	// or "slow start".
	Reason string

	// Since is when the latest response that caused the hold was received.
	Since time.Time

	// Until is when requests, or one probe, may be sent again. It is in the past while a
	// probe is due or in flight.
	Until time.Time

	// Estimated is set if the server did not state the hold.
	Estimated bool

	// Probe is set while the hold waits for the response to a probe.
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

// defaultShown is the number of accounts that Snapshot shows by default.
const defaultShown = 100

// Snapshot returns what t knows of the limits of servers. It shows at most maxAccounts
// accounts; zero or less means 100. It visits all accounts and locks one of them at a time,
// so it must not be called for each request: see [Tracker.Demand].
func (t *Tracker) Snapshot(maxAccounts int) Snapshot {
	t.once.Do(t.init)
	if maxAccounts <= 0 {
		maxAccounts = defaultShown
	}
	all, now := t.allSites(), t.clock().Now()
	s := Snapshot{At: now, Accounts: len(all)}
	ranks := make([]rank, len(all))
	for i, site := range all {
		ranks[i] = site.rank(now)
	}
	slices.SortFunc(ranks, compareRanks)
	for _, r := range ranks[:min(maxAccounts, len(ranks))] {
		s.Shown = append(s.Shown, r.site.snapshot(now))
	}
	return s
}

// allSites returns the accounts that are kept.
func (t *Tracker) allSites() (all []*site) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		for _, s := range sh.sites {
			all = append(all, s)
		}
		sh.mu.Unlock()
	}
	return all
}

// A rank is how much an account matters.
type rank struct {
	site *site
	held bool
	left float64 // smallest part of a limit that is left; 1: no limit is known
	used time.Time
}

func compareRanks(a, b rank) int {
	if a.held != b.held {
		if a.held {
			return -1
		}
		return 1
	}
	if a.left != b.left {
		return cmp.Compare(a.left, b.left)
	}
	if c := b.used.Compare(a.used); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.site.names.host, b.site.names.host), cmp.Compare(a.site.key, b.site.key))
}

// rank returns how much s matters as of now.
func (s *site) rank(now time.Time) rank {
	r := rank{site: s, left: 1}
	for _, b := range s.buckets() {
		b.mu.Lock()
		at := b.now(now)
		r.held = r.held || b.holdSnapshot(at) != nil
		r.used = later(r.used, b.last)
		for _, l := range b.limits(at) {
			if l.Size > 0 {
				r.left = min(r.left, float64(l.Remaining)/float64(l.Size))
			}
		}
		b.mu.Unlock()
	}
	return r
}

// buckets returns the quotas of s.
func (s *site) buckets() []*bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh := s.fresh.Load(); !slices.Contains(s.pools, fresh) {
		return append([]*bucket{fresh}, s.pools...)
	}
	return slices.Clone(s.pools)
}

// snapshot describes s as of now.
func (s *site) snapshot(now time.Time) AccountSnapshot {
	a := AccountSnapshot{Host: s.names.host, Account: s.accountNumber()}
	all := s.buckets()
	for _, b := range all {
		q, last, blank := b.snapshot(now)
		a.LastUsed = later(a.LastUsed, last)
		if !blank || len(all) == 1 && !s.silent.Load() {
			a.Quotas = append(a.Quotas, q)
		}
	}
	return a
}

// accountNumber returns AccountSnapshot.Account. The key of an account is a hash with a
// random seed, which is that of the host if there are no credentials.
func (s *site) accountNumber() string {
	host := maphash.String(s.tracker.seed, s.names.host)
	if s.key == host || s.key == host+1 { // of https, of http: see Tracker.hostOf
		return ""
	}
	return fmt.Sprintf("%06x", s.key&0xffffff)
}

// snapshot describes b as of now. last is when b was last asked; blank reports whether b
// knows nothing.
func (b *bucket) snapshot(now time.Time) (q QuotaSnapshot, last time.Time, blank bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now = b.now(now)
	q = QuotaSnapshot{Name: b.site.names.host, InFlight: int(b.flight.open), Hold: b.holdSnapshot(now)}
	q.Concurrency, q.ConcurrencyReason = b.concurrency()
	if b.est != nil && b.est.loop.on() {
		q.Rate = b.est.loop.rate
	}
	q.Limits = b.limits(now)
	blank = b.flight.open == 0 && len(q.Limits) == 0 && q.Hold == nil && b.est == nil
	return q, b.last, blank
}

// limits describes the limits of b. The caller holds the lock.
func (b *bucket) limits(now time.Time) (all []LimitSnapshot) {
	for i := range b.told {
		if t := &b.told[i]; !t.early.void() {
			all = append(all, t.snapshot(&b.flight, now))
		}
	}
	if b.est != nil && b.est.window.on() {
		all = append(all, b.est.window.snapshot(&b.flight, now))
	}
	for _, m := range b.meters {
		all = append(all, m.snapshot(now)...)
	}
	return all
}

// holdSnapshot describes the hold of b; nil: there is none.
func (b *bucket) holdSnapshot(now time.Time) *HoldSnapshot {
	switch {
	case b.gate.ajar:
		reason := "retry-after"
		if b.gate.estimated {
			reason = "learned rate"
		}
		return &HoldSnapshot{Reason: reason, Since: b.gate.at, Until: b.gate.until, Estimated: b.gate.estimated, Probe: b.flight.after(b.gate.round) > 0}
	case b.est != nil && b.est.caution.until.After(now):
		return &HoldSnapshot{Reason: "slow start", Since: b.response, Until: b.est.caution.until, Estimated: true}
	}
	use := b.site.tracker.use()
	for i := range b.told {
		t := &b.told[i]
		if free, _ := t.free(now, &b.flight, use); free > 0 || t.slots.are || t.left(now) > use.kept(t.limit) {
			continue // it grants a request, or only waits for responses
		}
		return &HoldSnapshot{Reason: "quota", Since: t.at, Until: t.opens(use), Probe: t.probe}
	}
	return nil
}

// concurrency returns the maximum number of requests in flight, and its reason; 0: none.
func (b *bucket) concurrency() (n int, reason string) {
	start := int64(b.site.tracker.start())
	if b.site.tracker.Mode != Full || start < 0 {
		return 0, ""
	}
	most := int64(0)
	if b.young() {
		most = b.slots()
	}
	if b.est != nil && b.est.caution.most > 0 && (most == 0 || b.est.caution.most < most) {
		most = b.est.caution.most
	}
	if reason = "slow start"; b.strain.most > 0 && start > 0 && (most == 0 || b.strain.most < most) {
		most, reason = b.strain.most, "slow responses"
	}
	if most == 0 {
		return 0, ""
	}
	return int(most), reason
}

// snapshot describes t as of now, while the claims of f are in flight.
func (t *told) snapshot(f *flight, now time.Time) LimitSnapshot {
	s := LimitSnapshot{Name: t.name, Unit: "requests", Size: t.limit, Remaining: max(t.left(now)-f.open, 0), RemainingKnown: true, Per: t.per, Reset: t.reset}
	if t.slots.are {
		s.Unit, s.Reset = concurrency, time.Time{}
	}
	return s
}

// snapshot describes w as of now, while the claims of f are in flight.
func (w *learnedWindow) snapshot(f *flight, now time.Time) LimitSnapshot {
	s := LimitSnapshot{Unit: "requests", Size: w.limit, Remaining: max(w.limit-w.used, 0), RemainingKnown: true, Per: w.length, Reset: w.reset, Learned: !w.declared, Declared: w.declared}
	if !w.reset.After(now) {
		s.Remaining = max(w.limit-f.open, 0)
	}
	return s
}

// snapshot describes the limits of m as of now.
func (m *meter) snapshot(now time.Time) (all []LimitSnapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.inUnits()
	for i := range m.told {
		s := m.told[i].snapshot(&f, now)
		s.Unit = m.unit
		all = append(all, s)
	}
	return all
}
