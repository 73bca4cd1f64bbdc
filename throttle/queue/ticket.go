package queue

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A Ticket asks for units of several limits at one instant: all of them, or none. The zero
// Ticket has no demands and is granted immediately.
//
// A Ticket must be used by one goroutine at a time, and not be changed while it waits or holds a grant. A granted
// Ticket must be ended by one Report without State Ongoing. Then it may be used again for a retry, which keeps its
// time of arrival and so goes before tickets that arrived later.
type Ticket struct {
	// Demands are the limits and the units to take of each. Those with a nil Limiter are ignored. If a limit has too few
	// units for all that ask for it, Wait fails immediately, unless a wrapper hides that they have one Limiter.
	Demands []throttle.Demand

	// Priority orders the tickets of a tenant: higher ones go first, see Queue.Aging. Zero
	// is the normal priority; negative ones are lower.
	Priority int32

	// Weight is the share of Tenant in each limit, relative to the weights of other tenants. Zero or less means 1.
	Weight int32

	// Tenant is the name of the tenant. Tenants share each limit fairly. Tickets with an empty Tenant together are one
	// tenant. Each name that waits has a share: set a name that was authenticated, not one that a client can invent.
	Tenant string

	// MaxServerWait is the longest wait that the server may impose, see
	// throttle.Decision.ServerImposed. A waiter is rejected as soon as a limit states a
	// longer one, and when estimates have held it for that long. Zero means no maximum.
	MaxServerWait time.Duration

	// Latency is the expected duration of the work after the grant. A waiter is rejected with context.DeadlineExceeded
	// as soon as a limit states that it cannot grant it Latency before the deadline of ctx. If no limit states when it
	// grants, it leaves Latency before the deadline, but not in the first half of its time. Zero means not known.
	Latency time.Duration

	// HighLatency is a duration that the work rarely exceeds. If more tickets wait than can be granted in time, those
	// of a class that have less time left than that go behind the others, those with the most time first, unless the
	// class has waiters of different priorities. After others of the class have waited for as long as a ticket can, it
	// leaves HighLatency before the deadline. If Latency is not known, HighLatency stands for it with limits that
	// state their rate and are not imposed by the server. Zero means not known.
	HighLatency time.Duration

	arrival     int64         // time of the first arrival on Queue.time; 0: none yet
	waited      time.Duration // duration of the last wait; while waiting, the time at which it began
	longestWait *limitState   // the limit that it waited for longest; nil: none
	grant       *grant        // nil: not granted
	sent        int32         // grants that were used
}

// A grant is what a granted ticket holds. It is separate so that waiting tickets, which hold nothing, are small.
type grant struct {
	owner *Ticket // a copy of the owner cannot end the grant again
	err   error   // the ticket was not granted, for this reason
	at    time.Time
	parts []grantPart // of each demand
}

// A grantPart is the part of a grant that is due to one demand.
type grantPart struct {
	decision throttle.Decision
	settled  int64 // one more than the units passed to Settle; 0: it was not called
}

// maxPooledParts is the number of demands up to which the memory for a grant is used again.
const maxPooledParts = 16

var grantPool = sync.Pool{New: func() any { return new(grant) }}

// release clears g, because a Decision may refer to other objects, and returns it to the pool.
func (g *grant) release() {
	clear(g.parts)
	if *g = (grant{parts: g.parts[:0]}); cap(g.parts) <= maxPooledParts {
		grantPool.Put(g)
	}
}

var errAlreadyGranted = errors.New("queue: ticket is granted already: end it with Report before it is used again")

// Add adds the demand d.
func (t *Ticket) Add(d throttle.Demand) { t.Demands = append(t.Demands, d) }

// Decision returns the decision with which the limiter of Demands[i] granted t, false if none.
func (t *Ticket) Decision(i int) (throttle.Decision, bool) {
	if !t.isGranted() || i >= len(t.grant.parts) || t.Demands[i].Limiter == nil {
		return throttle.Decision{}, false
	}
	return t.grant.parts[i].decision, true
}

// Waited returns how long the last Wait of t waited.
func (t *Ticket) Waited() time.Duration { return t.waited }

// WaitedFor returns the name of the limit that the last Wait of t waited for longest, whether the server imposes it, and
// whether it is an estimate, see throttle.Decision. It returns "" and false if t did not wait.
func (t *Ticket) WaitedFor() (limit string, serverImposed, estimated bool) {
	longest := cmp.Or(t.longestWait, new(limitState))
	return longest.name, longest.serverImposed, longest.estimated
}

// grantedAt returns when t was granted; zero if t holds no grant, or has no demands.
func (t *Ticket) grantedAt() time.Time {
	if !t.isGranted() {
		return time.Time{}
	}
	return t.grant.at
}

// Reserve claims all demands as of now, without a Queue and without waiting. A zero now is read by the first limiter
// that is asked; those that may block are asked last. Reserve returns a Decision with OK set, or that of the first
// limit that rejected its demand. It is an error if t is granted already.
func (t *Ticket) Reserve(ctx context.Context, now time.Time) (throttle.Decision, error) {
	if t.isGranted() {
		return throttle.Decision{}, errAlreadyGranted
	}
	var rejection throttle.Decision
	_, err := t.reserve(ctx, throttle.Claim{Now: now}, &rejection)
	if err == nil && t.isGranted() {
		return throttle.Decision{OK: true, At: t.grant.at}, nil
	}
	return rejection, err
}

// reserve grants t, which is not granted. If a limiter rejects its demand, reserve sets rejection
// and returns the index of the demand.
//
// The claim c has the fields that are common to all demands. After a rejection the units of other limits are returned
// as of c.Now, or as of the current time if a blocking limiter was asked: see AllOf.
func (t *Ticket) reserve(ctx context.Context, c throttle.Claim, rejection *throttle.Decision) (i int, err error) {
	g := grantPool.Get().(*grant)
	g.parts = slices.Grow(g.parts, len(t.Demands))[:len(t.Demands)]
	var sw ticks.Stopwatch // runs while blocking limiters are asked, except the first of all
	var asked, timed bool
	defer func() { // also if a limiter panics
		if t.grant == g {
			return
		}
		if timed {
			c.Now = sw.Now()
		}
		t.report(ctx, 0, g, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		g.release()
	}()
	for _, blocking := range [...]bool{false, true} {
		for i = range t.Demands {
			m, d := &t.Demands[i], &g.parts[i].decision
			if m.Limiter == nil || d.OK || !blocking && !m.Limiter.Traits().NonBlocking {
				continue
			}
			if blocking && asked && !timed {
				sw, timed = ticks.StartStopwatch(c.Now), true
			}
			asked = true
			c.Key, c.Cost = m.Key, m.Cost
			if *d, err = m.Limiter.Reserve(ctx, c); err != nil || !d.OK {
				if *rejection = *d; err == nil {
					t.checkRepeated(ctx, c, i, rejection)
				}
				d.OK = false
				return i, err
			}
			if c.Now.IsZero() {
				c.Now = d.At
			}
		}
	}
	t.grant, g.owner, g.at = g, t, c.Now
	return 0, nil
}

// checkRepeated sets rejection.Wait, of the rejection of demand i with the claim c, to throttle.Forever
// if other demands of t have the same limit, or an AllOf of it, and it never has enough units for all of them.
func (t *Ticket) checkRepeated(ctx context.Context, c throttle.Claim, i int, rejection *throttle.Decision) {
	m := &t.Demands[i]
	for n := range numLimits(m) {
		l, repeated := m.Limiter, false
		if parts := partsOf(l); len(parts) > 0 {
			l = parts[n]
		}
		c.Cost = max(m.Cost, 1)
		for k := range t.Demands {
			if o := &t.Demands[k]; k != i && o.Key == m.Key && hasPart(o.Limiter, l) {
				c.Cost, repeated = ticks.Add(c.Cost, max(o.Cost, 1)), true
			}
		}
		if !repeated {
			continue
		}
		c.DryRun = true
		if d, err := l.Reserve(ctx, c); err == nil && d.Wait == throttle.Forever {
			rejection.Wait = d.Wait
		}
	}
}

// hasPart reports whether l is part, or an AllOf of it. They are the same if they are the same pointer.
func hasPart(l, part throttle.Limiter) bool {
	if l == nil || reflect.TypeOf(part).Kind() != reflect.Pointer {
		return false
	}
	return l == part || slices.Contains(partsOf(l), part)
}

func (t *Ticket) isNonBlocking() bool {
	return !slices.ContainsFunc(t.Demands, func(m throttle.Demand) bool {
		return m.Limiter != nil && !m.Limiter.Traits().NonBlocking
	})
}

func (t *Ticket) isEmpty() bool {
	return !slices.ContainsFunc(t.Demands, func(m throttle.Demand) bool { return m.Limiter != nil })
}

// withoutCancel returns ctx, without its cancellation if l may block: the end of a claim must
// reach the limiter even if the ctx of the caller has ended.
func withoutCancel(ctx context.Context, l throttle.Limiter) context.Context {
	if ctx.Done() == nil || l.Traits().NonBlocking {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// Report reports f to the limits of a granted ticket. Unless f.State is Ongoing, the grant ends. A zero f.Now is read
// by the limiters that need the time. Report does nothing if t is not granted.
func (t *Ticket) Report(ctx context.Context, f throttle.Feedback) {
	if !t.isGranted() {
		return
	}
	defer func() { // also if a limiter panics
		if f.State == throttle.Ended {
			t.sent++
		}
		if f.State != throttle.Ongoing {
			t.endGrant()
		}
	}()
	t.report(ctx, 0, t.grant, f)
}

// report reports f to the limits of the demands from i on that are granted by g, even if one of them panics.
func (t *Ticket) report(ctx context.Context, i int, g *grant, f throttle.Feedback) {
	n := min(len(g.parts), len(t.Demands))
	for i < n && (!g.parts[i].decision.OK || t.Demands[i].Limiter == nil) {
		i++
	}
	if i == n {
		return
	}
	defer t.report(ctx, i+1, g, f)
	m, p := &t.Demands[i], &g.parts[i]
	switch {
	case p.settled == 0 || f.State != throttle.Ended:
	case p.settled == 1:
		f = throttle.Feedback{Now: f.Now, State: throttle.Unused}
	default:
		f.Cost = p.settled - 1
	}
	m.Limiter.Report(withoutCancel(ctx, m.Limiter), throttle.Claim{Key: m.Key, Cost: m.Cost}, p.decision, f)
}

// isGranted reports whether t holds a grant, and is not a copy of the Ticket that holds it.
func (t *Ticket) isGranted() bool { return t.grant != nil && t.grant.owner == t }

func (t *Ticket) endGrant() {
	g := t.grant
	t.grant = nil
	g.release()
}

// Settle sets the actual cost of demand i of a granted t, in units of its limit. It is for
// tickets whose limits have different costs; throttle.Feedback.Cost is the same for all.
//
// The last call counts; it takes effect with the Report that ends the grant. Zero units or less mean that the demand
// was Unused. A limiter that ignores Feedback.Cost returns all units of a claim or none. Settle does nothing if t is
// not granted, or Demands[i] was added after the grant.
func (t *Ticket) Settle(i int, units int64) {
	if t.isGranted() && i < len(t.grant.parts) {
		t.grant.parts[i].settled = max(units, 0) + 1
	}
}

// outcome returns nil if t was granted, else the error. It continues a panic of a limiter.
func (t *Ticket) outcome() error {
	err := t.grant.err
	if err != nil {
		t.endGrant()
	}
	if p, ok := err.(*panicError); ok {
		panic(p.value)
	}
	return err
}
