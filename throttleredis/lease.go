package throttleredis

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/heed-go/heed/throttle"
)

// leases decides in Mode Leased. It takes units of a key in Redis for claims that come later, and
// grants claims of them in memory:
//
//	claim ─ units are leased? ─▶ granted
//	             │ no
//	             └─ a claim of the key is under way? ─ yes ─▶ wait for it, and begin again
//	                          │ no
//	                          └─▶ Redis: units for this claim, for those that wait, and ahead
//
// # Why the limit is never exceeded
//
// A unit is taken in Redis before it is used, and used once. What remains to be shown is that it may
// be used later. The count of a window holds until its end, and leased units are valid until then. A
// bucket of B units at a rate of r refills while units are leased; they are valid for D, and the
// script leaves r·D of its B units. In any time t at most r·(t+D) + B - r·D = r·t + B units are used.
//
// A process that crashes, pauses or loses a reply uses fewer units than it took. Units that were not
// used are returned once, by a command that the client does not repeat.
type leases struct {
	limiter *Limiter
	seed    maphash.Seed
	sets    [leaseSets]atomic.Pointer[[leaseWays]atomic.Pointer[leasedKey]]
	closed  atomic.Bool
	ahead   time.Duration // in which a process uses the units that it takes ahead: leaseTime, or less

	after func(time.Duration, func()) // calls a function later; another one in tests
}

const (
	leaseSets = 1024 // with leaseWays, the keys of a limiter that have leases at the same time
	leaseWays = 8

	// leaseTime is the time in which a process uses the units that it takes ahead. A longer one saves
	// round trips, and keeps more units from other processes.
	leaseTime = 50 * time.Millisecond

	// minLeaseTime is the shortest leases.ahead: a round trip takes a part of it, and units would expire
	// before they are used.
	minLeaseTime = 2 * time.Millisecond

	// leaseShare is the part of a bucket that is left while units are leased: 1/20. It determines for
	// how long they are valid.
	leaseShare = 20

	// leaseTimeout bounds a round trip if Store.Timeout is zero.
	leaseTimeout = time.Second

	maxLeasedKeyBytes = 512 // of a key that has leases
)

// A lease is units of one round trip that the process may use, until they expire.
type lease struct {
	left    atomic.Int64 // units; -1: closed, nothing can be taken or put back
	size    int64
	grant   uint64    // see throttle.Decision.Grant
	from    time.Time // when the claim was sent
	expires time.Time
	wall    int64     // expires by the wall clock, which goes on while a machine is suspended; ns since the Unix epoch
	others  int64     // units that were left in Redis
	reset   time.Time // when all units are restored
}

// valid reports whether the units may be used at a reading of the clock.
func (l *lease) valid(now time.Time) bool {
	return l != nil && now.Before(l.expires) && now.UnixNano() < l.wall && !now.Before(l.from)
}

// units returns the units that are left.
func (l *lease) units() int64 {
	if l == nil {
		return 0
	}
	return max(l.left.Load(), 0)
}

// take takes n units, or returns -n if n is negative. It returns how many are left, or -1 if there are
// fewer than n, or l is closed or has expired.
func (l *lease) take(n int64, now time.Time) int64 {
	for l.valid(now) {
		left := l.left.Load()
		if left < max(n, 0) {
			break
		}
		if l.left.CompareAndSwap(left, left-n) {
			return left - n
		}
	}
	return -1
}

// takeAll closes l and returns the units that it had.
func (l *lease) takeAll() int64 { return max(l.left.Swap(-1), 0) }

// A leasedKey is the leases of one key in this process.
type leasedKey struct {
	key       string
	current   atomic.Pointer[lease]           // used first, without a lock; nil: none
	rejection atomic.Pointer[cachedRejection] // nil: none
	low       atomic.Int64                    // if fewer units are left in current, further ones are taken
	refilling atomic.Bool                     // since low was reached, until there are further units

	mu         sync.Mutex
	next       *lease        // used after current; nil: none
	flight     *leaseFlight  // the claim that is under way; nil: none
	returns    int           // of units, by goroutines without a caller
	returned   chan struct{} // closed when the last of them has ended
	waiting    int64         // units of the claims that wait for it, or have waited for the last one
	used       int64         // units of leases that have ended, and of claims that Redis granted
	sampledAt  time.Time
	sampleUsed int64 // units used until sampledAt
	recent     int64 // units used within leases.ahead before sampledAt
	ticking    bool
	tickUsed   int64 // units used until the last tick
}

// A leaseFlight is a claim in Redis, for one caller and for those that wait for it.
type leaseFlight struct {
	done     chan struct{} // closed when the fields below are set
	decision throttle.Decision
	at       time.Time
	err      error

	// rejection is that of an equal claim which waits; nil: it is not known, or would be granted.
	rejection *cachedRejection

	decided atomic.Bool // set by whichever is first: the decision, or the caller that stops waiting
}

// newLeases returns the leases of l, or nil if the units of its limit cannot be used later.
func (s *Store) newLeases(l *Limiter) *leases {
	if s.Mode != Leased || l.limit.lease == nil || l.limit.leaseTime < minLeaseTime {
		return nil
	}
	a := &leases{limiter: l, seed: maphash.MakeSeed(), ahead: min(leaseTime, l.limit.leaseTime)}
	a.after = func(d time.Duration, f func()) { time.AfterFunc(d, f) }
	s.leasesMu.Lock()
	defer s.leasesMu.Unlock()
	s.leases = slices.DeleteFunc(s.leases, func(p weak.Pointer[leases]) bool { return p.Value() == nil })
	s.leases = append(s.leases, weak.Make(a))
	return a
}

// closeLeases returns the units of all limiters.
func (s *Store) closeLeases(ctx context.Context) error {
	s.leasesMu.Lock()
	all := slices.Clone(s.leases)
	s.leasesMu.Unlock()
	for _, p := range all {
		if a := p.Value(); a != nil {
			if err := a.close(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// reserve decides on c, of n units.
func (a *leases) reserve(ctx context.Context, c throttle.Claim, n int64) (throttle.Decision, error) {
	now := a.now(c)
	if d, ok := a.decideLocally(c, n, now); ok {
		return d, nil
	}
	if c.DryRun {
		return a.dryRun(ctx, c, n)
	}
	k := a.keyOf(c.Key, now)
	for range 2 { // a claim that has waited for two others waits for no third one
		if k == nil {
			break
		}
		f, leads := k.join(n)
		if leads {
			go a.claim(context.WithoutCancel(ctx), k, f, c, n)
		}
		if !f.wait(ctx, leads) {
			return throttle.Decision{}, wrapError(ctx.Err(), false)
		}
		switch {
		case f.err != nil:
			return a.limiter.limit.afterError(ctx, c, f.at, f.err)
		case leads:
			return f.decision, nil
		}
		if d, ok := a.decideLocally(c, n, a.now(c)); ok {
			return d, nil
		}
		if r := f.rejection; r != nil && r.units == n {
			return r.at(a.now(c)), nil
		}
	}
	r, at, err := a.send(ctx, c, n, 0, 0)
	if err != nil {
		return a.limiter.limit.afterError(ctx, c, at, err)
	}
	return a.limiter.limit.decision(r.part(0), c, r.now(), at), nil
}

// wait waits until f is done. It returns false if ctx ends before; what a claim that leads has then
// taken stays leased.
func (f *leaseFlight) wait(ctx context.Context, leads bool) bool {
	select {
	case <-f.done:
		return true
	case <-ctx.Done():
		if !leads || f.decided.CompareAndSwap(false, true) {
			return false
		}
		<-f.done
		return true
	}
}

// dryRun decides on c, of n units, without taking any.
func (a *leases) dryRun(ctx context.Context, c throttle.Claim, n int64) (throttle.Decision, error) {
	limit := &a.limiter.limit
	d, err := a.limiter.ask(ctx, c, min(n, maxUnits)+limit.leaseMargin)
	d.Remaining = max(d.Remaining-limit.leaseMargin, 0)
	d.Fresh = err == nil && d.Remaining == d.Limit && d.ResetAfter == 0
	return d, err
}

// now returns the reading by which leases expire: the time of a claim may be an old one.
func (a *leases) now(c throttle.Claim) time.Time {
	if s := a.limiter.store; s.useLocalClock && s.serverClock == nil && !c.Now.IsZero() {
		return c.Now
	}
	return a.limiter.store.now()
}

// decideLocally grants c with leased units, or rejects it as an equal claim before; false: it cannot.
func (a *leases) decideLocally(c throttle.Claim, n int64, now time.Time) (throttle.Decision, bool) {
	k := a.find(c.Key)
	if k == nil {
		return throttle.Decision{}, false
	}
	l := k.current.Load()
	if c.DryRun {
		if !l.valid(now) || l.left.Load() < n {
			return throttle.Decision{}, false
		}
		return a.decision(l, l.grant, l.left.Load(), c, now), true
	}
	var grant uint64
	left := l.take(n, now)
	if left >= 0 {
		grant = l.grant
	} else if l, grant, left = k.takeNext(n, a.now(c)); left < 0 { // now may be older than a lease
		r := k.rejection.Load()
		if r == nil || r.units != n || now.Before(r.from) || !now.Before(r.to) {
			return throttle.Decision{}, false
		}
		return r.at(now), true
	}
	if left < k.low.Load() && k.refilling.CompareAndSwap(false, true) {
		a.refill(k, c.Now)
	}
	return a.decision(l, grant, left, c, now), true
}

func (a *leases) decision(l *lease, grant uint64, left int64, c throttle.Claim, now time.Time) throttle.Decision {
	limit := &a.limiter.limit
	if !c.Now.IsZero() {
		now = c.Now
	}
	d := throttle.Decision{
		OK: true, Policy: limit.policy, At: now, Limit: limit.capacity, Per: limit.per,
		Remaining: min(left+l.others, limit.capacity), Grant: grant,
		ResetAfter: max(l.reset.Sub(now)-time.Duration(left)*limit.leaseUnit, 0),
	}
	if limit.calendar != nil {
		d.Per = limit.calendar.windowLength(int64(grant))
	}
	return d
}

// set returns the set of places of a key.
func (a *leases) set(key string) *atomic.Pointer[[leaseWays]atomic.Pointer[leasedKey]] {
	return &a.sets[maphash.String(a.seed, key)%leaseSets]
}

// find returns the leases of a key; nil: there are none.
func (a *leases) find(key string) *leasedKey {
	if ways := a.set(key).Load(); ways != nil {
		for i := range ways {
			if k := ways[i].Load(); k != nil && k.key == key {
				return k
			}
		}
	}
	return nil
}

// keyOf returns the leases of a key. It returns nil if all places for it are in use.
func (a *leases) keyOf(key string, now time.Time) *leasedKey {
	if k := a.find(key); k != nil || len(key) > maxLeasedKeyBytes || a.closed.Load() {
		return k
	}
	set := a.set(key)
	ways := set.Load()
	if ways == nil {
		set.CompareAndSwap(nil, new([leaseWays]atomic.Pointer[leasedKey]))
		ways = set.Load()
	}
	added := &leasedKey{key: strings.Clone(key), sampledAt: now}
	for i := range ways {
		old := ways[i].Load()
		if old != nil && old.key == key {
			return old
		}
		if (old == nil || old.isIdle(now)) && ways[i].CompareAndSwap(old, added) {
			return added
		}
	}
	return nil
}

// isIdle reports whether the place of k may be given to another key.
func (k *leasedKey) isIdle(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.flight == nil && k.returns == 0 && k.held() == 0 && now.Sub(k.sampledAt) > leaseTime
}

// held returns the units that are left in the leases. k.mu is held.
func (k *leasedKey) held() int64 { return k.current.Load().units() + k.next.units() }

// takeNext takes n units of current and next together. It returns the lease that is current then, the
// grant of the claim, and the units left in current; -1: there are fewer than n.
func (k *leasedKey) takeNext(n int64, now time.Time) (l *lease, grant uint64, left int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	parts := k.takeParts(n, now)
	if parts.units() < n {
		parts.putBack(now)
		return nil, 0, -1
	}
	if parts[len(parts)-1].lease == k.next {
		k.end(k.current.Load())
		k.current.Store(k.next)
		k.low.Store(k.next.size / 2)
		k.next = nil
	}
	l = k.current.Load()
	return l, parts[0].lease.grant, l.units()
}

// end closes a lease. k.mu is held.
func (k *leasedKey) end(l *lease) (units int64) {
	if l == nil {
		return 0
	}
	units = l.takeAll()
	k.used += l.size - units
	return units
}

// usedUntil returns the units that were used until now. k.mu is held.
func (k *leasedKey) usedUntil() int64 {
	used := k.used
	if l := k.current.Load(); l != nil {
		used += l.size - l.units()
	}
	return used
}

// forecast returns the units that are used within ahead, as far as the past shows: what was used in
// the last ahead, or has been used since. k.mu is held.
func (k *leasedKey) forecast(now time.Time, ahead time.Duration) int64 {
	since := max(k.usedUntil()-k.sampleUsed, 0)
	if elapsed := now.Sub(k.sampledAt); elapsed >= ahead || elapsed < 0 {
		return int64(float64(since) * float64(ahead) / float64(max(elapsed, ahead)))
	}
	return max(since, k.recent)
}

// sample begins another period of forecast if one has passed. k.mu is held.
func (k *leasedKey) sample(now time.Time, ahead time.Duration) {
	if elapsed := now.Sub(k.sampledAt); elapsed >= ahead || elapsed < 0 {
		k.recent = k.forecast(now, ahead)
		k.sampledAt, k.sampleUsed = now, k.usedUntil()
	}
}

// join returns the claim for which one of n units waits, or a new one that the caller leads.
func (k *leasedKey) join(n int64) (f *leaseFlight, leads bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flight != nil {
		k.waiting += n
		return k.flight, false
	}
	return k.begin(), true
}

// begin begins a claim. k.mu is held.
func (k *leasedKey) begin() *leaseFlight {
	k.flight = &leaseFlight{done: make(chan struct{}), err: errEnded}
	return k.flight
}

// refill takes units ahead, without a claim, unless a claim is under way.
func (a *leases) refill(k *leasedKey, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.flight == nil && !a.closed.Load() {
		f := k.begin()
		f.decided.Store(true)
		go a.claim(context.Background(), k, f, throttle.Claim{Key: k.key, Now: now}, 0)
	}
}

// claim takes n units for c, units for the claims that wait, and ahead, as far as they are not leased.
func (a *leases) claim(ctx context.Context, k *leasedKey, f *leaseFlight, c throttle.Claim, n int64) {
	defer k.finish(f)
	defer func() {
		if v := recover(); v != nil { // of a hook of the Store; this goroutine has no caller
			f.err = fmt.Errorf("throttleredis: Store.OnOperation panicked: %v", v)
		}
	}()
	now := a.now(c)
	var waiting, ahead int64
	var parts leaseParts
	k.mu.Lock()
	if n <= a.limiter.limit.capacity {
		parts = k.takeParts(n-1, now) // at least one is missing
	}
	if k.next == nil && !a.closed.Load() {
		waiting, ahead = max(k.waiting-n, 0), max(k.forecast(now, a.ahead)-k.held(), 0)
	}
	k.waiting = 0
	if n+waiting+ahead == 0 { // what is leased suffices
		k.low.Store(0)
		k.mu.Unlock()
		f.err = nil
		return
	}
	k.mu.Unlock()
	defer func() { a.giveBack(context.Background(), k, parts.putBack(now)) }()
	var r reply
	r, f.at, f.err = a.send(ctx, c, n-parts.units(), waiting, ahead)
	if f.err == nil && parts.units() > 0 && !r.part(0).ok() { // the wait must hold for all units
		a.giveBack(ctx, k, parts.putBack(now))
		waiting = 0
		r, f.at, f.err = a.send(ctx, c, n, 0, 0)
	}
	if f.err == nil {
		a.apply(k, f, r, c, n-parts.units(), waiting, &parts, now)
	}
}

// apply adds to k what a reply has brought. The claim of n units, besides parts, was sent at now.
func (a *leases) apply(k *leasedKey, f *leaseFlight, r reply, c throttle.Claim, n, waiting int64, parts *leaseParts, now time.Time) {
	limit, p := &a.limiter.limit, r.part(0)
	f.decision = limit.decision(p, c, r.now(), f.at)
	units := r.more()
	l := &lease{grant: f.decision.Grant, from: now, expires: now.Add(certainWait(limit.lease(p))), others: f.decision.Remaining}
	l.reset, l.wall = f.at.Add(f.decision.ResetAfter), l.expires.UnixNano()
	k.mu.Lock()
	defer k.mu.Unlock()
	switch waits := f.decided.CompareAndSwap(false, true); {
	case !p.ok():
	case waits:
		k.used += n
		if len(*parts) > 0 {
			f.decision.Grant, *parts = (*parts)[0].lease.grant, nil
		}
	default:
		units += n // its caller does not wait any longer
	}
	if units > 0 {
		l.size = units
		l.left.Store(units)
		a.add(k, l, now)
	} else {
		k.low.Store(0)
	}
	if p.ok() {
		k.sample(now, a.ahead)
	}
	held := k.held()
	f.decision.Remaining = min(f.decision.Remaining+held, limit.capacity)
	f.decision.ResetAfter = max(f.decision.ResetAfter-time.Duration(held)*limit.leaseUnit, 0)
	rejected := f.decision
	if p.ok() {
		rejected.OK, rejected.Wait = false, wholeMicros(duration(r.again(), limit.ticksPerMicro))
	}
	if n > 0 && (!p.ok() || r.more() < waiting) && rejected.Wait > 0 {
		to := now.Add(min(a.ahead, certainWait(rejected.Wait)))
		f.rejection = &cachedRejection{units: n, decision: rejected, received: now, from: now, to: to}
		k.rejection.Store(f.rejection)
	}
}

// A leasePart is units that were taken of a lease.
type leasePart struct {
	lease *lease
	units int64
}

// leaseParts are the units of one claim, those of the older lease first.
type leaseParts []leasePart

// units returns the sum of the units.
func (p leaseParts) units() (sum int64) {
	for _, part := range p {
		sum += part.units
	}
	return sum
}

// takeParts takes up to n units of the leases. k.mu is held.
func (k *leasedKey) takeParts(n int64, now time.Time) (parts leaseParts) {
	for _, l := range []*lease{k.current.Load(), k.next} {
		for taken := min(l.units(), n); taken > 0 && l.valid(now); taken = min(l.units(), n) {
			if l.take(taken, now) >= 0 { // else another claim was faster
				parts = append(parts, leasePart{l, taken})
				n -= taken
				break
			}
		}
	}
	return parts
}

// putBack empties p: units go to their leases, except those of closed leases, which it returns.
func (p *leaseParts) putBack(now time.Time) (rest leaseParts) {
	rest = slices.DeleteFunc(*p, func(part leasePart) bool { return part.lease.take(-part.units, now) >= 0 })
	*p = nil
	return rest
}

// add adds a lease to k. k.mu is held.
func (a *leases) add(k *leasedKey, l *lease, now time.Time) {
	current := k.current.Load()
	switch {
	case !current.valid(now) || current.left.Load() <= 0:
		k.end(current)
		k.current.Store(l)
		k.low.Store(l.size / 2)
	case k.next != nil: // its caller has not waited for it
		go a.giveBackLater(k, leaseParts{{l, l.takeAll()}}, k.beginReturn())
	default:
		k.next = l
		k.low.Store(0)
	}
	if !k.ticking {
		k.ticking, k.tickUsed = true, k.usedUntil()
		a.after(a.ahead, func() { a.tick(k) })
	}
}

func (k *leasedKey) finish(f *leaseFlight) {
	k.mu.Lock()
	k.flight = nil
	k.refilling.Store(false)
	k.mu.Unlock()
	close(f.done)
}

// tick returns units that are not used, and is called again while there are leases.
func (a *leases) tick(k *leasedKey) {
	k.mu.Lock()
	used := k.usedUntil()
	returned := a.unneeded(k, 2*max(used-k.tickUsed, 0)) // negative: unused units were put back
	k.tickUsed = used
	if k.ticking = k.held() > 0; k.ticking {
		defer a.after(a.ahead, func() { a.tick(k) })
	}
	if len(returned) > 0 {
		defer a.giveBackLater(k, returned, k.beginReturn())
	}
	k.mu.Unlock()
}

// unneeded takes the units that k has beyond those that are kept, and all that have expired. It returns
// those that have not. k.mu is held.
func (a *leases) unneeded(k *leasedKey, kept int64) (parts leaseParts) {
	now := a.now(throttle.Claim{})
	trim := func(l *lease) *lease {
		for l.valid(now) {
			excess := l.units() - kept
			switch {
			case excess <= 0:
				kept = -excess
				return l
			case kept == 0:
				parts = append(parts, leasePart{l, k.end(l)})
				return nil
			case l.take(excess, now) >= 0: // else a claim was faster
				parts = append(parts, leasePart{l, excess})
				l.size -= excess
				kept = 0
				return l
			}
		}
		k.end(l)
		return nil
	}
	k.current.Store(trim(k.current.Load()))
	k.next = trim(k.next)
	return parts
}

func (a *leases) giveBack(ctx context.Context, k *leasedKey, parts leaseParts) {
	defer func() { _ = recover() }() // of a hook of the Store: the goroutine may have no caller
	for _, p := range parts {
		if p.units > 0 {
			c := throttle.Claim{Key: k.key, Cost: p.units}
			a.limiter.settle(ctx, c, throttle.Decision{OK: true, Grant: p.lease.grant}, throttle.Feedback{State: throttle.Unused})
			k.rejection.Store(nil)
		}
	}
}

// giveBackLater returns parts without a caller, and then calls end, that of beginReturn.
func (a *leases) giveBackLater(k *leasedKey, parts leaseParts, end func()) {
	defer end()
	a.giveBack(context.Background(), k, parts)
}

// beginReturn lets close wait for a return that begins now, until end is called. k.mu is held, but not by the caller of end.
func (k *leasedKey) beginReturn() (end func()) {
	if k.returns++; k.returns == 1 {
		k.returned = make(chan struct{})
	}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.returns--; k.returns == 0 {
			close(k.returned)
		}
	}
}

// report settles a claim whose cost differs by extra units with a lease; false: it cannot.
func (a *leases) report(c throttle.Claim, d throttle.Decision, extra int64) bool {
	k := a.find(c.Key)
	if k == nil {
		return false
	}
	now := a.now(c)
	if extra > 0 {
		_, _, left := k.takeNext(extra, now)
		return left >= 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	current, next := k.current.Load(), k.next
	return current != nil && current.grant == d.Grant && current.take(extra, now) >= 0 ||
		next != nil && next.grant == d.Grant && next.take(extra, now) >= 0
}

// close returns all units, waits for returns that are under way, and takes no further ones ahead.
func (a *leases) close(ctx context.Context) error {
	a.closed.Store(true)
	for i := range a.sets {
		ways := a.sets[i].Load()
		if ways == nil {
			continue
		}
		for j := range ways {
			k := ways[j].Load()
			if k == nil {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			for k.mu.Lock(); k.flight != nil || k.returns > 0; k.mu.Lock() {
				f, returned := k.flight, k.returned
				k.mu.Unlock()
				if f != nil && !f.wait(ctx, false) {
					return context.Cause(ctx)
				}
				if f == nil {
					select {
					case <-returned:
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
			}
			parts, end := a.unneeded(k, 0), k.beginReturn()
			k.mu.Unlock()
			a.giveBack(ctx, k, parts)
			end()
		}
	}
	return nil
}

// send claims n units, takes further ones for claims that wait, and ahead, and leaves leaseMargin units.
func (a *leases) send(ctx context.Context, c throttle.Claim, n, waiting, ahead int64) (reply, time.Time, error) {
	l := a.limiter
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(l.store.Timeout, leaseTimeout))
	defer cancel()
	k := l.callFor(c.Key)
	defer l.release(k)
	return l.decide(ctx, k, c.Now, 8+partSize+leaseSize, func() {
		k.setOp(opLease, n, clampUnits(waiting))
		k.claim.append(float64(clampUnits(ahead)), float64(l.limit.leaseMargin))
	})
}

// leaseSize is the size of what follows the part of a limit in the reply to send.
const leaseSize = 2 * 8

// more returns the number of units taken besides those of the claim.
func (r reply) more() int64 { return intAt(string(r), 1+partSize/8) }

// again returns the ticks until another equal claim can be granted; negative: forever.
func (r reply) again() int64 { return intAt(string(r), 2+partSize/8) }
