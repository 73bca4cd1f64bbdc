package throttleredis

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
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
	all   group             // of all keys
	byKey map[string]*group // those with a round trip under way
}

// A group is the calls that may travel together. groups.mu guards it.
type group struct {
	key        string      // in groups.byKey
	roundTrips int         // under way
	queue      []*call     // in the order of arrival
	impatient  *time.Timer // runs while calls wait; nil: none has waited yet
}

const (
	maxGrouped    = 128                   // calls in a round trip; the number of equal claims is a byte
	groupPatience = 50 * time.Millisecond // for which a call waits at most for the reply to others
)

// groupOf returns the group of calls for a key. All calls of a limiter are one group if all keys are on
// one server; otherwise those for a key are. g.mu is held.
func (g *groups) groupOf(key string) *group {
	if _, one := g.store.Client.(*redis.Client); one && !g.store.separatesKeys.Load() {
		return &g.all
	}
	q := g.byKey[key]
	if q == nil {
		if g.byKey == nil {
			g.byKey = make(map[string]*group)
		}
		q = &group{key: key}
		g.byKey[key] = q
	}
	return q
}

// run sends k, alone or with others. written reports whether it may have been written to a connection.
func (g *groups) run(ctx context.Context, k *call) (reply string, written bool, err error) {
	if g.store.Mode != Synchronous {
		q, waits := g.enter(ctx, k)
		if waits {
			return g.await(ctx, q, k)
		}
		defer func() { g.follow(q, g.leave(q)) }()
	}
	reply, err = g.script.run(ctx, g.store, k)
	return reply, k.claim.written.Load(), err
}

// await returns the reply to k, which waits for others, or the error of ctx.
func (g *groups) await(ctx context.Context, q *group, k *call) (reply string, written bool, err error) {
	select {
	case <-k.done:
	case <-ctx.Done():
		if !g.withdraw(q, k) {
			k.abandoned = true
			return "", true, ctx.Err()
		}
	}
	return k.reply, k.roundTrip != nil, k.err
}

// enter begins a round trip for k alone, or adds k to those of its group that wait.
func (g *groups) enter(ctx context.Context, k *call) (q *group, waits bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q = g.groupOf(k.key); q.roundTrips == 0 {
		q.roundTrips = 1
		return q, false
	}
	k.ctx, k.roundTrip, k.reply, k.err = ctx, nil, "", nil
	switch q.queue = append(q.queue, k); len(q.queue) {
	case 1:
		g.limitWait(q)
	case maxGrouped:
		g.follow(q, g.begin(q))
	}
	return q, true
}

// limitWait makes a round trip begin after groupPatience, unless one begins before. g.mu is held.
func (g *groups) limitWait(q *group) {
	if q.impatient != nil {
		q.impatient.Reset(groupPatience)
		return
	}
	q.impatient = time.AfterFunc(groupPatience, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.follow(q, g.begin(q))
	})
}

// follow runs r, if it is not nil, and those that follow, on a separate goroutine.
func (g *groups) follow(q *group, r *roundTrip) {
	if r != nil {
		go g.travel(q, r)
	}
}

// withdraw removes c, whose context has ended, from those that wait. It returns false if c is under
// way, and has neither a reply nor an error.
func (g *groups) withdraw(q *group, c *call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.roundTrip == nil {
		q.queue = slices.DeleteFunc(q.queue, func(o *call) bool { return o == c })
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
func (g *groups) leave(q *group) *roundTrip {
	g.mu.Lock()
	defer g.mu.Unlock()
	q.roundTrips--
	next := g.begin(q)
	if q.roundTrips == 0 && q != &g.all {
		delete(g.byKey, q.key)
	}
	return next
}

// begin begins a round trip for the first of those that wait, and returns it for a call of travel.
// It returns nil if there are none. g.mu is held.
func (g *groups) begin(q *group) *roundTrip {
	n := 0
	for n < min(len(q.queue), maxGrouped) && bytes.Equal(q.queue[n].limits, q.queue[0].limits) {
		n++
	}
	if n == 0 {
		return nil
	}
	r := newRoundTrip(slices.Clone(q.queue[:n]))
	q.queue = slices.Delete(q.queue, 0, n)
	if q.impatient.Stop(); len(q.queue) > 0 {
		g.limitWait(q)
	}
	q.roundTrips++
	return r
}

// travel runs r and those that follow. Before the next one, other goroutines run, so that callers that
// have just got a reply can send their next call with it: a round trip costs as much as 20 calls.
func (g *groups) travel(q *group, r *roundTrip) {
	defer func() {
		if r != nil { // a hook of the client has called runtime.Goexit
			g.follow(q, g.leave(q))
		}
	}()
	for ; r != nil; r = g.leave(q) {
		r.run(g)
		runtime.Gosched()
	}
}

// A roundTrip is a command that decides on several calls.
type roundTrip struct {
	calls   []*call
	waiting atomic.Int64 // callers that have not stopped waiting
	ctx     context.Context
	cancel  context.CancelFunc // called when no caller waits
}

func newRoundTrip(calls []*call) *roundTrip {
	r := &roundTrip{calls: calls}
	for _, c := range calls {
		c.roundTrip = r
	}
	r.waiting.Store(int64(len(calls)))
	r.ctx = context.WithoutCancel(calls[0].ctx)
	if latest := latestDeadline(calls); !latest.IsZero() {
		r.ctx, r.cancel = context.WithDeadline(r.ctx, latest)
	} else {
		r.ctx, r.cancel = context.WithCancel(r.ctx)
	}
	return r
}

// latestDeadline returns the latest deadline of calls, or the zero time if one of them has none.
func latestDeadline(calls []*call) (latest time.Time) {
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
	err := errEnded
	defer func() {
		r.cancel()
		for _, c := range r.calls {
			c.err = cmp.Or(c.err, err)
			c.done <- struct{}{}
		}
	}()
	err = g.send(r.ctx, r.calls)
	if err != nil && redis.HasErrorPrefix(err, "CROSSSLOT") && len(r.calls) > 1 {
		g.store.separatesKeys.Store(true)
		err = nil
		for i, c := range r.calls {
			c.err = g.send(r.ctx, r.calls[i:i+1])
		}
	}
}

// errEnded is the error if a hook of the client has called runtime.Goexit.
var errEnded = errors.New("the client ended the goroutine")

// send sends calls and sets their replies and errors. It returns an error that all have. A panic of
// the client, or of a hook of the client, becomes an error, because the goroutine has no caller.
func (g *groups) send(ctx context.Context, calls []*call) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the client panicked: %v", v)
		}
	}()
	switch reply, err := g.script.runAll(ctx, g.store, commandOf(calls)); all := reply.(type) {
	case []any:
		for i, c := range calls[:min(len(all), len(calls))] {
			c.reply, _ = all[i].(string)
			if message, ok := all[i].([]any); ok {
				c.err = replyError(fmt.Sprint(message...))
			}
		}
		return err
	case string:
		for _, c := range calls {
			n := min(c.size, len(all))
			c.reply, all = all[:n], all[n:]
		}
		return err
	default:
		return err
	}
}

// A replyError is an error of the server for one of several claims.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (replyError) RedisError() {}

// commandOf returns the command for calls. Consecutive calls for one key share the key, and those
// that are equal share their encoding.
func commandOf(calls []*call) []any {
	first, last := calls[0], 0 // last is the position of the claim before
	command := first.appendKeys(make([]any, 3, 6+len(first.of)))
	claims := bytes.Clone(first.claim.bytes)
	for i, c := range calls[1:] {
		b, another := c.claim.bytes, c.key != calls[i].key
		if another {
			command = c.appendKeys(command)
		} else if bytes.Equal(b[2:], claims[last+2:]) {
			claims[last+1]++
			continue
		}
		last = len(claims)
		claims = append(claims, b...)
		if !another {
			claims[last] &^= anotherKey
		}
	}
	command[2] = len(command) - 3
	if command = append(command, first.limitsArg, claims); len(calls) > 1 {
		command = append(command, len(calls))
	}
	return command
}
