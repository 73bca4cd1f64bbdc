package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// groups sends the claims and settlements of a limiter in Mode Grouped. A call that finds no round
// trip under way is sent immediately, on the goroutine of its caller. Calls that arrive meanwhile
// wait, and travel together in the next round trip: one script decides on them in the order of
// their arrival, at one reading of the clock.
//
//	caller ─ no round trip is under way ─▶ Redis
//	callers ─ queue ─ the reply arrives ─▶ Redis, one script for all
//
// The next round trip begins early if maxGrouped calls wait, or the first for groupPatience, so that
// a reply that is lost delays no others for longer. A call whose context ends while it waits
// has not been sent.
type groups struct {
	store  *Store
	script *script

	mu    sync.Mutex
	named map[string]*group // see Store.groupOf; those with a round trip under way, and "" always
}

// A group is the calls that may travel together. groups.mu guards it.
type group struct {
	roundTrips int            // under way
	queue      []*groupedCall // in the order of arrival
	impatient  *time.Timer    // runs while calls wait; nil: none has waited yet
}

const (
	maxGrouped    = 128                   // calls in a round trip
	groupPatience = 50 * time.Millisecond // for which a call waits at most for the reply to others
)

// A groupedCall is a call that waits for others, or travels with them.
type groupedCall struct {
	ctx       context.Context
	call      *call         // must not be used once the groupedCall is in a roundTrip
	roundTrip *roundTrip    // nil: it waits
	done      chan struct{} // closed when reply and err are set
	reply     string
	err       error
}

// groupOf returns the name of the group of calls with a Redis key. All calls of a limiter are one
// group if all keys are on one server; otherwise those of a key are.
func (s *Store) groupOf(key string) string {
	if _, one := s.Client.(*redis.Client); one && !s.separatesKeys.Load() {
		return ""
	}
	return key
}

// run sends k, alone or with others. written reports whether it may have been written to a connection.
func (g *groups) run(ctx context.Context, k *call) (reply string, written bool, err error) {
	if g.store.Mode == Synchronous {
		reply, err = g.script.run(ctx, g.store, k)
		return reply, k.operation.written.Load(), err
	}
	name := g.store.groupOf(k.args[3].(string))
	c := g.enter(ctx, name, k)
	if c == nil {
		defer func() { g.follow(name, g.leave(name)) }()
		reply, err = g.script.run(ctx, g.store, k)
		return reply, k.operation.written.Load(), err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if !g.withdraw(name, c) {
			return "", true, ctx.Err()
		}
	}
	return c.reply, c.roundTrip != nil, c.err
}

// enter begins a round trip for k alone and returns nil, or adds k to those that wait.
func (g *groups) enter(ctx context.Context, name string, k *call) *groupedCall {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.named[name]
	if q == nil {
		q = new(group)
		if g.named == nil {
			g.named = make(map[string]*group)
		}
		g.named[name] = q
	}
	if q.roundTrips == 0 {
		q.roundTrips = 1
		return nil
	}
	c := &groupedCall{ctx: ctx, call: k, done: make(chan struct{})}
	switch q.queue = append(q.queue, c); len(q.queue) {
	case 1:
		g.limitWait(name, q)
	case maxGrouped:
		g.follow(name, g.begin(name, q))
	}
	return c
}

// limitWait makes a round trip begin after groupPatience, unless one begins before. g.mu is held.
func (g *groups) limitWait(name string, q *group) {
	if q.impatient != nil {
		q.impatient.Reset(groupPatience)
		return
	}
	q.impatient = time.AfterFunc(groupPatience, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.follow(name, g.begin(name, q))
	})
}

// follow runs r, if it is not nil, and those that follow, on a separate goroutine.
func (g *groups) follow(name string, r *roundTrip) {
	if r != nil {
		go g.travel(name, r)
	}
}

// withdraw removes c, whose context has ended, from those that wait. It returns false if c is under
// way, and has neither a reply nor an error.
func (g *groups) withdraw(name string, c *groupedCall) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.roundTrip == nil {
		q := g.named[name]
		q.queue = slices.DeleteFunc(q.queue, func(o *groupedCall) bool { return o == c })
		c.err = c.ctx.Err()
		return true
	}
	select {
	case <-c.done:
		return true
	default:
	}
	if c.roundTrip.waiting.Add(-1) == 0 {
		c.roundTrip.cancel()
	}
	return false
}

// leave ends a round trip. It begins and returns the next one if calls wait, otherwise nil.
func (g *groups) leave(name string) *roundTrip {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.named[name]
	q.roundTrips--
	next := g.begin(name, q)
	if q.roundTrips == 0 && name != "" {
		delete(g.named, name)
	}
	return next
}

// begin begins a round trip for the first of those that wait, and returns it for a call of travel.
// It returns nil if there are none. g.mu is held.
func (g *groups) begin(name string, q *group) *roundTrip {
	n := 0
	for n < min(len(q.queue), maxGrouped) && q.queue[n].call.sameLimits(q.queue[0].call) {
		n++
	}
	if n == 0 {
		return nil
	}
	r := newRoundTrip(slices.Clone(q.queue[:n]))
	q.queue = slices.Delete(q.queue, 0, n)
	if q.impatient.Stop(); len(q.queue) > 0 {
		g.limitWait(name, q)
	}
	q.roundTrips++
	return r
}

// travel runs r and those that follow.
func (g *groups) travel(name string, r *roundTrip) {
	defer func() {
		if r != nil { // a hook of the client has called runtime.Goexit
			g.follow(name, g.leave(name))
		}
	}()
	for ; r != nil; r = g.leave(name) {
		r.run(g)
	}
}

// A roundTrip is a command that decides on several calls.
type roundTrip struct {
	calls   []*groupedCall
	limits  []any        // arguments of the limits, which are the same for all calls
	keys    []any        // of all calls, of which each has the same number
	args    []any        // other arguments of all calls
	ends    []int        // for each call, the index in args after its arguments
	waiting atomic.Int64 // callers that have not stopped waiting
	ctx     context.Context
	cancel  context.CancelFunc // called when no caller waits
}

// newRoundTrip returns a roundTrip with copies of the arguments of calls.
func newRoundTrip(calls []*groupedCall) *roundTrip {
	first, n := calls[0], len(calls)
	k := first.call
	r := &roundTrip{calls: calls, limits: slices.Clone(k.args[k.limitArgs:k.claimArgs])}
	r.keys = make([]any, 0, n*(k.limitArgs-3))
	r.args, r.ends = make([]any, 0, n*(len(k.args)-k.claimArgs)), make([]int, n)
	for i, c := range calls {
		c.roundTrip = r
		r.keys = append(r.keys, c.call.args[3:c.call.limitArgs]...)
		r.args = append(r.args, c.call.operation.name)
		r.args = append(r.args, c.call.args[c.call.claimArgs+1:]...)
		r.ends[i] = len(r.args)
	}
	r.waiting.Store(int64(n))
	r.ctx = context.WithoutCancel(first.ctx)
	if latest := latestDeadline(calls); !latest.IsZero() {
		r.ctx, r.cancel = context.WithDeadline(r.ctx, latest)
	} else {
		r.ctx, r.cancel = context.WithCancel(r.ctx)
	}
	return r
}

// latestDeadline returns the latest deadline of calls, or the zero time if one of them has none.
func latestDeadline(calls []*groupedCall) (latest time.Time) {
	for _, c := range calls {
		deadline, ok := c.ctx.Deadline()
		if !ok {
			return time.Time{}
		}
		if deadline.After(latest) {
			latest = deadline
		}
	}
	return latest
}

// run sends the calls and passes the replies to the callers. If the server is one of a cluster,
// which has not run the script because of the different keys, it sends each call separately, and
// later ones are grouped by key.
func (r *roundTrip) run(g *groups) {
	var replies []any
	err := errEnded
	defer func() { r.finish(replies, err) }()
	replies, err = r.send(g, 0, len(r.calls))
	if err != nil && redis.HasErrorPrefix(err, "CROSSSLOT") && len(r.calls) > 1 {
		g.store.separatesKeys.Store(true)
		replies, err = nil, nil
		for i := range r.calls {
			reply, err := r.send(g, i, i+1)
			replies = append(replies, append(reply, err)[0])
		}
	}
}

// errEnded is the error if a hook of the client has called runtime.Goexit.
var errEnded = errors.New("the client ended the goroutine")

// finish passes replies and errors, or err, to the callers.
func (r *roundTrip) finish(replies []any, err error) {
	r.cancel()
	for i, c := range r.calls {
		switch {
		case err != nil:
			c.err = err
		case i < len(replies):
			c.reply, _ = replies[i].(string)
			c.err, _ = replies[i].(error)
		}
		close(c.done)
	}
}

// send sends the calls from one up to another and returns their replies and errors. A panic of the
// client, or of a hook of the client, becomes an error, because the goroutine has no caller.
func (r *roundTrip) send(g *groups, from, to int) (replies []any, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the client panicked: %v", v)
		}
	}()
	parts, begin := len(r.keys)/len(r.calls), 0
	if from > 0 {
		begin = r.ends[from-1]
	}
	command := make([]any, 3, 3+len(r.keys)+len(r.limits)+len(r.args))
	command[2] = (to - from) * parts
	command = append(command, r.keys[from*parts:to*parts]...)
	command = append(command, r.limits...)
	command = append(command, r.args[begin:r.ends[to-1]]...)
	reply, err := g.script.runAll(r.ctx, g.store, command)
	if err != nil {
		return nil, err
	}
	if all, ok := reply.([]any); ok {
		return all, nil
	}
	return []any{reply}, nil
}
