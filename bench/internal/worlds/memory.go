package worlds

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// A Memory is what a tracker keeps, as far as I6 bounds it.
type Memory struct {
	Peak     int64    // the most bytes that an account had reserved
	Accounts int      // the most accounts
	Problems []string // violations of I6
}

// A memory watches the memory of a tracker. The zero memory watches nothing.
type memory struct {
	tracker     *quota.Tracker   // nil: there is none
	own         throttle.Limiter // on requests in flight; nil: there is none
	maxAccounts int              // 0: the default

	attempts atomic.Int64
	mu       sync.Mutex
	kept     Memory // guarded by mu
}

const (
	sampleEvery = 16 // attempts
	budget      = 16 << 10

	forgetTime     = 400 * 24 * time.Hour // after which all that a server can state is over: headers.MaxDelay is 366 days
	leastRounds    = 64                   // responses of each quota after that: more than the successes after which nothing learned is kept
	mostRounds     = 1200                 // until a learned rate is not needed
	longestHealthy = time.Hour            // that a request may wait then
	newQuotas      = 40                   // quotas, more than there is memory for
)

// sample checks the bytes that all accounts have reserved, before some of the attempts.
func (m *memory) sample() {
	if m.tracker == nil || m.attempts.Add(1)%sampleEvery != 1 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.check("during the run")
}

// check checks the bytes that all accounts have reserved, and their number. The caller holds m.mu.
func (m *memory) check(when string) {
	accounts := accountsOf(m.tracker)
	m.kept.Accounts = max(m.kept.Accounts, len(accounts))
	if m.maxAccounts > 0 && len(accounts) > m.maxAccounts {
		m.problem("%s: %d accounts of %d", when, len(accounts), m.maxAccounts)
	}
	for _, a := range accounts {
		reserved := a.reserved()
		m.kept.Peak = max(m.kept.Peak, reserved)
		if reserved < 0 || reserved > budget {
			m.problem("%s: %d bytes are reserved", when, reserved)
		}
	}
}

func (m *memory) problem(format string, args ...any) {
	m.kept.Problems = append(m.kept.Problems, fmt.Sprintf(format, args...))
}

// end checks what is kept after the last call has ended: what is reserved is what the quotas account for. Then all that the server
// has stated is over, it accepts everything, and it states nothing: no hold, rate or bound on the requests in flight
// remains. Limits that were stated, and windows that were learned, remain while no request shows that they are wrong, but they give
// their memory to the quotas of other routes.
func (m *memory) end(w *World) *Memory {
	if m.tracker == nil || m.tracker.Mode == quota.Disabled {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account("at the end")
	for _, q := range m.quotas(w) {
		if q.InFlight != 0 {
			m.problem("at the end: %d requests in flight", q.InFlight)
		}
	}
	if m.own != nil {
		if d, err := m.own.Reserve(context.Background(), throttle.Claim{Cost: w.ownInFlight(), DryRun: true}); err != nil || !d.OK {
			m.problem("at the end: units of the own limit are in use: %v", err)
		}
	}
	time.Sleep(forgetTime)
	examples := m.recover(w)
	m.account("after the recovery")
	for _, q := range m.quotas(w) {
		if outlives(q) {
			m.problem("after the recovery: hold %v, %v per second, limits %v, at most %d in flight (%s)", q.Hold, q.Rate, q.Limits, q.Concurrency, q.ConcurrencyReason)
		}
	}
	time.Sleep(forgetTime)
	m.replace(w, examples)
	m.account("after the replacement")
	return &m.kept
}

// quotas returns the quotas of all accounts of which something is known.
func (m *memory) quotas(w *World) (all []quota.QuotaSnapshot) {
	for _, a := range m.tracker.Snapshot(len(w.calls)).Shown {
		all = append(all, a.Quotas...)
	}
	return all
}

// account checks the number of accounts, and compares what each has reserved with what it holds. No request is in flight.
func (m *memory) account(when string) {
	m.check(when)
	for _, a := range accountsOf(m.tracker) {
		if reserved, held := a.reserved(), a.held(); reserved != held {
			m.problem("%s: %d bytes are reserved, %d are held", when, reserved, held)
		}
	}
}

// recover makes requests, which a server accepts that states nothing: of all routes and tenants, and then more of those that have
// different quotas, and of a new route. It returns an example of the calls of each tenant.
func (m *memory) recover(w *World) (examples map[int32]int) {
	type kind struct {
		route, tenant int32
		post          bool
	}
	seen, byLimiter, examples := map[kind]bool{}, map[throttle.Limiter]int{}, map[int32]int{}
	for i, c := range w.calls {
		examples[c.tenant] = i
		if k := (kind{c.route, c.tenant, c.post}); !seen[k] {
			seen[k] = true
			byLimiter[m.tracker.Demand(w.request(i)).Limiter] = i
			m.accepted(w.request(i), http.Header{})
		}
	}
	for n := 0; n < leastRounds || n < mostRounds && slices.ContainsFunc(m.quotas(w), outlives); n++ {
		time.Sleep(time.Second)
		for _, i := range byLimiter {
			m.accepted(w.request(i), http.Header{})
		}
		for _, i := range examples {
			m.accepted(onRoute(w.request(i), "/unknown"), http.Header{})
		}
	}
	return examples
}

// outlives reports whether q, which is not blank, knows anything but limits.
func outlives(q quota.QuotaSnapshot) bool {
	return q.Hold != nil && q.Hold.Reason != "quota" || q.Concurrency != 0 || q.Rate != 0 || q.InFlight != 0
}

// onRoute returns req with another path.
func onRoute(req *http.Request, path string) *http.Request {
	req.URL.Path = path
	return req
}

// replace makes requests of more quotas than there is memory for. None of the quotas before may remain, and nothing that the
// unknown one had learned.
func (m *memory) replace(w *World, examples map[int32]int) {
	began := time.Now()
	before := map[unsafe.Pointer]bool{}
	for _, a := range accountsOf(m.tracker) {
		for _, q := range a.replaceable(began) {
			before[q] = true
		}
	}
	for _, i := range examples {
		for n := range newQuotas {
			name := word(n)
			m.accepted(onRoute(w.request(i), "/new/"+name), http.Header{
				"Ratelimit":        {fmt.Sprintf(`"%sa";r=50;t=60, "%sb";r=500;t=3600`, name, name)},
				"Ratelimit-Policy": {fmt.Sprintf(`"%sa";q=100;w=60, "%sb";q=1000;w=3600`, name, name)},
			})
		}
	}
	for _, a := range accountsOf(m.tracker) {
		remain := 0
		for _, q := range a.replaceable(began) {
			if before[q] {
				remain++
			}
		}
		if remain > 0 {
			m.problem("after the replacement: %d quotas remain, and keep others from memory (%d bytes)", remain, a.reserved())
		}
	}
}

// accepted makes a request that is accepted with header.
func (m *memory) accepted(req *http.Request, header http.Header) {
	for began := time.Now(); ; {
		demand := m.tracker.Demand(req)
		claim := throttle.Claim{Now: time.Now(), Waits: true}
		d, err := demand.Limiter.Reserve(req.Context(), claim)
		if err == nil && d.OK {
			resp := &http.Response{StatusCode: http.StatusOK, Header: header, Body: http.NoBody, Request: req}
			demand.Limiter.Report(req.Context(), claim, d, m.tracker.Feedback(req, demand, resp, nil, time.Now(), nil))
			return
		}
		if waits := time.Since(began) + d.Wait; err != nil || waits > longestHealthy {
			m.problem("after the recovery: a request waits %v for %s (%v)", waits, d.Policy, err)
			return
		}
		time.Sleep(max(d.Wait, time.Millisecond))
	}
}

// The following reads the unexported fields of a tracker, and panics if these have other names. The bytes that are
// reserved are those of quota/memory.go and quota/internal/model/memory.go.

// An account is a quota.endpoint.
type account struct{ reflect.Value }

// accountsOf returns the accounts of t.
func accountsOf(t *quota.Tracker) (all []account) {
	v := reflect.ValueOf(t).Elem()
	mu := (*sync.RWMutex)(unsafe.Pointer(v.FieldByName("mu").UnsafeAddr()))
	mu.RLock()
	defer mu.RUnlock()
	for i := v.FieldByName("endpoints").MapRange(); i.Next(); {
		all = append(all, account{i.Value().Elem()})
	}
	return all
}

// replaceable returns the quotas of a that were used last before a time: those of both kinds, and the unknown one if it knows
// anything.
func (a account) replaceable(before time.Time) (all []unsafe.Pointer) {
	add := func(q reflect.Value) {
		if used := (*time.Time)(unsafe.Pointer(q.Elem().FieldByName("LastGranted").UnsafeAddr())); used.Before(before) {
			all = append(all, q.UnsafePointer())
		}
	}
	for i := range a.FieldByName("quotas").Len() {
		add(a.FieldByName("quotas").Index(i))
	}
	if heldByQuota(a.unknown().Elem()) > 0 {
		add(a.unknown())
	}
	if small := a.FieldByName("small"); !small.IsNil() {
		for i := range small.Elem().FieldByName("routes").Len() {
			all = append(all, small.Elem().FieldByName("routes").Index(i).FieldByName("quota").UnsafePointer())
		}
	}
	return all
}

// unknown returns the pointer to the unknown quota of a.
func (a account) unknown() reflect.Value {
	return reflect.NewAt(a.FieldByName("quotas").Type().Elem().Elem(), a.FieldByName("unknown").FieldByName("v").UnsafePointer())
}

// reserved returns the number of bytes that a has reserved. It may be called while a is used.
func (a account) reserved() int64 {
	return (*atomic.Int64)(unsafe.Pointer(a.FieldByName("Memory").FieldByName("Int64").UnsafeAddr())).Load()
}

const (
	routeBytes    = 24
	smallBytes    = 64
	quotaExtra    = 48
	estimateExtra = 48
	unitExtra     = 24
	otherExtra    = 8 // of learned limits and of sets of routes
	showSeconds   = 3 // resetUnit.seconds of the one that all accounts share
)

// held returns the number of bytes that what a holds accounts for.
func (a account) held() (n int64) {
	n = int64(a.FieldByName("routes").Len()) * routeBytes
	sets := a.FieldByName("patterns").FieldByName("sets")
	n += int64(sets.Len()) * (size(sets.Type().Elem()) + otherExtra)
	quotas := a.FieldByName("quotas")
	pointer := quotas.Type().Elem()
	unknown := a.unknown()
	known := false // unknown is one of quotas
	for i := range quotas.Len() {
		q := quotas.Index(i)
		known = known || q.UnsafePointer() == unknown.UnsafePointer()
		search := q.Elem().FieldByName("Overload").FieldByName("search") // reserved with the quota, allocated with the first failure
		n += size(pointer.Elem()) + size(search.Type().Elem()) + quotaExtra + heldByQuota(q.Elem())
		if shared := q.Elem().FieldByName("shared"); !shared.IsNil() {
			n += size(shared.Type().Elem())
		}
	}
	if !known {
		n += heldByQuota(unknown.Elem())
	}
	if small := a.FieldByName("small"); !small.IsNil() {
		n += int64(small.Elem().FieldByName("routes").Len()) * smallBytes
	}
	return n + a.heldByResets()
}

// heldByResets returns the bytes of the resetUnit of a.
func (a account) heldByResets() int64 {
	p := a.FieldByName("resetUnit")
	if p.FieldByName("v").IsNil() {
		return 0
	}
	unit := reflect.NewAt(p.Type().Field(0).Type.Elem().Elem(), p.FieldByName("v").UnsafePointer()).Elem()
	if unit.FieldByName("seconds").Int() >= showSeconds {
		return 0
	}
	return size(unit.Type())
}

// heldByQuota returns the bytes of what a quota has learned.
func heldByQuota(q reflect.Value) (n int64) {
	n = heldByEstimates(q.FieldByName("Estimates"))
	if l := q.FieldByName("Learned"); !l.IsNil() {
		n += size(l.Type().Elem()) + otherExtra
	}
	if l := q.FieldByName("sends"); !l.IsNil() {
		n += size(l.Type().Elem())
	}
	for i := range q.FieldByName("units").Len() {
		u := q.FieldByName("units").Index(i).Elem()
		n += size(u.Type()) + unitExtra + int64(u.FieldByName("Unit").Len()+u.FieldByName("policy").Len()) + heldByEstimates(u.FieldByName("Estimates"))
	}
	return n
}

func heldByEstimates(all reflect.Value) (n int64) {
	for i := range all.Len() {
		e := all.Index(i)
		n += size(e.Type()) + estimateExtra + int64(e.FieldByName("Name").Len())
	}
	return n
}

func size(t reflect.Type) int64 { return int64(t.Size()) } //nolint:gosec // a few kilobytes
