package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// MaxDemands is how many limits one ticket can pass. Use throttle.AllOf for more.
const MaxDemands = 4

// A Ticket asks for units of several limits at one instant: all of them, or none.
// The zero Ticket demands nothing and is granted.
//
// A Ticket is used by one goroutine at a time. After it was granted it ends in
// one Cancel or one Observe without throttle.Feedback.Partial; then it may be used again.
// Used again it keeps its place in line: a retry is served before those who came
// later. To stand in line anew, start from Ticket{}. Nothing of it may change while
// it is in line.
type Ticket struct {
	Demands  [MaxDemands]throttle.Demand
	Priority int32  // within a tenant, higher goes first: see Queue.Aging
	Weight   int32  // the tenant's part of a limit, next to others'; 0: 1
	Tenant   string // tenants share each limit fairly; "": who names none is one of them

	// MaxServerWait is the longest wait that the other side may impose, see throttle.Decision.ServerImposed: a
	// caller is refused as soon as a limit states a longer one, and when estimates have
	// held it for so long. Zero means any.
	MaxServerWait time.Duration

	// Latency is how long the work that the grant is for takes. A caller that has to
	// wait is refused with context.DeadlineExceeded as soon as its grant cannot come
	// Latency before the deadline of ctx; it takes no units. A claim that can be
	// granted immediately is granted whatever Latency is. Zero means that the deadline
	// alone counts.
	Latency time.Duration

	arrival     int64         // when it first came, by the Queue's count of time; 0: not yet
	waited      time.Duration // in line for its last grant; while in line, when it joined
	longestWait *string       // the policy that it waited for longest; nil: none
	grant       *grant        // nil: not granted
}

// A grant is what a ticket holds. It is a thing of its own so that tickets in
// line, which hold nothing, stay small.
type grant struct {
	owner     *Ticket // a copy of the owner must not end the grant once more
	err       error   // not a grant, but the reason why there is none
	at        time.Time
	decisions [MaxDemands]throttle.Decision
	settled   [MaxDemands]int64 // one more than what Settle said; 0: it was not called
}

var grantPool = sync.Pool{New: func() any { return new(grant) }}

var errAlreadyGranted = errors.New("queue: ticket is granted already: end it with Cancel or Observe before it is used again")

// Add adds a demand. It panics if the ticket has MaxDemands already.
func (t *Ticket) Add(d throttle.Demand) {
	for i := range t.Demands {
		if t.Demands[i].Limiter == nil {
			t.Demands[i] = d
			return
		}
	}
	panic("queue: Ticket.Add: more than MaxDemands demands: combine some of them with throttle.AllOf")
}

// Decision returns what the limiter of Demands[i] decided when t was granted.
// It is false while t holds no grant.
func (t *Ticket) Decision(i int) (throttle.Decision, bool) {
	if !t.isGranted() || t.Demands[i].Limiter == nil {
		return throttle.Decision{}, false
	}
	return t.grant.decisions[i], true
}

// Waited returns how long t stood in line in the last Wait.
func (t *Ticket) Waited() time.Duration { return t.waited }

// WaitedFor returns the name of the limit for which t stood in line longest in
// the last Wait; "" if it did not stand in line.
func (t *Ticket) WaitedFor() string {
	if t.longestWait == nil {
		return ""
	}
	return *t.longestWait
}

// GrantedAt returns the reading of the clock that t was granted at. It is zero
// while t holds no grant, or demands nothing.
func (t *Ticket) GrantedAt() time.Time {
	if !t.isGranted() {
		return time.Time{}
	}
	return t.grant.at
}

// Reserve asks for all demands as of now; a zero now is read by the first limiter
// that is asked. It returns the decision of the first limit that refused, or OK.
// What others had granted by then is given back. Limits that may do I/O are asked
// last, see throttle.NonBlocking. A ticket that is granted already is an error.
func (t *Ticket) Reserve(ctx context.Context, now time.Time) (throttle.Decision, error) {
	if t.isGranted() {
		return throttle.Decision{}, errAlreadyGranted
	}
	var refusal throttle.Decision
	_, err := t.reserve(ctx, throttle.Claim{Now: now}, &refusal)
	if err == nil && t.isGranted() {
		return throttle.Decision{OK: true, At: t.grant.at}, nil
	}
	return refusal, err
}

// reserve is Reserve for a ticket that is not granted: it is granted then, or
// refusal says why not and i which demand was refused.
//
// What all claims have in common is in c. The units of other limits are given back as of c.Now, unless an answer was so slow
// that time has given part of them back meanwhile.
func (t *Ticket) reserve(ctx context.Context, c throttle.Claim, refusal *throttle.Decision) (i int, err error) {
	g := grantPool.Get().(*grant)
	order, n, nonBlocking := t.order()
	var sw ticks.Stopwatch
	j := 0
	defer func() { // also if a limiter panics
		if t.grant == g {
			return
		}
		if j >= max(nonBlocking, 1) {
			c.Now = sw.Now()
		}
		defer g.recycle()
		t.cancel(ctx, order[:j], g, c.Now)
	}()
	for ; j < n; j++ {
		if j == max(nonBlocking, 1) {
			sw = ticks.StartStopwatch(c.Now)
		}
		i = int(order[j])
		m, d := &t.Demands[i], &g.decisions[i]
		c.Key, c.Cost = m.Key, m.Cost
		if *d, err = m.Limiter.Reserve(ctx, c); err != nil || !d.OK {
			*refusal = *d
			return i, err
		}
		if c.Now.IsZero() {
			c.Now = d.At
		}
	}
	t.grant, g.owner, g.at = g, t, c.Now
	return 0, nil
}

// order returns the indexes of the n demands in the order in which they are asked:
// first those of local limiters.
func (t *Ticket) order() (order [MaxDemands]uint8, n, nonBlocking int) {
	if t.Demands[1].Limiter == nil && t.Demands[2].Limiter == nil && t.Demands[3].Limiter == nil {
		if t.Demands[0].Limiter != nil {
			n = 1
		}
		return order, n, n
	}
	last := MaxDemands
	for i := range t.Demands {
		switch l := t.Demands[i].Limiter; {
		case l == nil:
		case throttle.IsNonBlocking(l):
			order[nonBlocking] = uint8(i)
			nonBlocking++
		default:
			last--
			order[last] = uint8(i)
		}
	}
	remote := order[last:]
	slices.Reverse(remote)
	n = nonBlocking + copy(order[nonBlocking:], remote)
	return order, n, nonBlocking
}

// Cancel gives back the units of a granted ticket that was not used, as of now;
// a zero now is read by each limiter. It does nothing if t is not granted.
func (t *Ticket) Cancel(ctx context.Context, now time.Time) {
	if !t.isGranted() {
		return
	}
	order, n, _ := t.order()
	defer t.endGrant()
	t.cancel(ctx, order[:n], t.grant, now)
}

// cancel gives back what the demands with the given indexes were granted, all of it even
// if a limiter panics.
func (t *Ticket) cancel(ctx context.Context, indexes []uint8, g *grant, now time.Time) {
	if len(indexes) == 0 {
		return
	}
	if len(indexes) > 1 {
		defer t.cancel(ctx, indexes[1:], g, now)
	}
	i := indexes[0]
	m := &t.Demands[i]
	m.Limiter.Cancel(withoutCancel(ctx, m.Limiter), throttle.Claim{Key: m.Key, Cost: m.Cost, Now: now}, g.decisions[i])
}

// withoutCancel returns ctx, without its end if l looks at it: the end of a claim must reach
// its limiter also when the caller has gone.
func withoutCancel(ctx context.Context, l throttle.Limiter) context.Context {
	if ctx.Done() == nil || throttle.IsNonBlocking(l) {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

// Observe tells the limits of a granted ticket what came of it. Without f.More
// that ends the grant. It does nothing if t is not granted.
func (t *Ticket) Observe(ctx context.Context, f throttle.Feedback) {
	if !t.isGranted() {
		return
	}
	if !f.Partial {
		defer t.endGrant()
	}
	t.observeFrom(ctx, 0, f)
}

// observeFrom tells the limits of the demands from i on, all of them even if a limiter
// panics.
func (t *Ticket) observeFrom(ctx context.Context, i int, f throttle.Feedback) {
	for i < MaxDemands && t.Demands[i].Limiter == nil {
		i++
	}
	if i == MaxDemands {
		return
	}
	defer t.observeFrom(ctx, i+1, f)
	t.observe(ctx, i, f)
}

// isGranted reports whether t holds a grant that is its own.
func (t *Ticket) isGranted() bool { return t.grant != nil && t.grant.owner == t }

func (t *Ticket) endGrant() {
	g := t.grant
	t.grant = nil
	g.recycle()
}

// recycle gives g back for others to use.
func (g *grant) recycle() {
	*g = grant{} // a Decision can keep other objects from being collected
	grantPool.Put(g)
}

// Settle says what demand i of a granted t turned out to cost, in units of its limit.
// It is for tickets of several limits, where each may have a price of its own:
// throttle.Feedback.Cost says the same to all of them.
//
// What is said last counts, from the Observe that ends the grant. 0, or less, says that
// nothing was used: that demand is given back, as by Cancel. A limiter that is no
// throttle.Observer can take back all of a claim, but not a part. Settle does nothing if t holds
// no grant.
func (t *Ticket) Settle(i int, units int64) {
	if t.isGranted() {
		t.grant.settled[i] = max(units, 0) + 1
	}
}

// observe tells the limit of demand i what came of it.
func (t *Ticket) observe(ctx context.Context, i int, f throttle.Feedback) {
	m, d := &t.Demands[i], t.grant.decisions[i]
	c := throttle.Claim{Key: m.Key, Cost: m.Cost}
	ctx = withoutCancel(ctx, m.Limiter)
	if n := t.grant.settled[i]; n == 1 && !f.Partial {
		c.Now = f.Now
		m.Limiter.Cancel(ctx, c, d)
		return
	} else if n > 1 && !f.Partial {
		f.Cost = n - 1
	}
	throttle.Observe(ctx, m.Limiter, c, d, f)
}

// outcome returns nil if t was granted, else why not. A panic of a limiter goes on here.
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
