package queue

import (
	"context"
	"github.com/heed-go/heed/throttle"
)

// Settle says what demand i of a granted t turned out to cost, in units of its limit.
// It is for tickets of several limits, where each may have a price of its own:
// Feedback.Cost says the same to all of them.
//
// What is said last counts, from the Observe that ends the grant. 0, or less, says that
// nothing was used: that demand is given back, as by Cancel. A limiter that is no
// Observer can take back all of a claim, but not a part. Settle does nothing if t holds
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
