package throttleredis

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A groupWorld is several processes in Mode Grouped whose commands travel only when a test says so.
type groupWorld struct {
	t         *testing.T
	redis     processor
	key       string
	now       time.Time        // of the server
	oracle    throttle.Limiter // decides on the same claims one by one, in the order in which the server executes them
	processes []*groupProcess
	ended     []*groupClaim // claims whose callers must have returned at the end
}

// A groupProcess is a process of a groupWorld.
type groupProcess struct {
	w        *groupWorld
	limit    *Limiter
	waiting  []*groupClaim // in the order of arrival, not in a command yet
	mu       sync.Mutex
	arriving []*groupCommand // of which the world does not know yet
	sent     []*groupCommand // not executed yet
	executed []*groupCommand // whose replies are under way
}

// A groupClaim is a claim of a caller.
type groupClaim struct {
	cost     int64
	cancel   context.CancelFunc
	returned chan struct{} // closed when decision and err are set
	decision throttle.Decision
	err      error
	want     *throttle.Decision // of the oracle; nil: not executed
	lost     bool               // the command or its reply
	canceled bool               // before it was sent
}

// A groupCommand is a command of a process.
type groupCommand struct {
	cmd    redis.Cmder
	claims []*groupClaim
	done   chan error // to the client
}

// Process implements processor: it waits until the test lets the command end.
func (p *groupProcess) Process(_ context.Context, cmd redis.Cmder) error {
	c := &groupCommand{cmd: cmd, done: make(chan error)}
	p.mu.Lock()
	p.arriving = append(p.arriving, c)
	p.mu.Unlock()
	err := <-c.done
	if err != nil {
		cmd.SetErr(err)
	}
	return err
}

// A groupClient is the client of a process.
type groupClient struct {
	redis.Scripter
	*groupProcess
}

var groupLimit = throttle.FixedWindowConfig{Count: 3, Per: time.Second}

func newGroupWorld(t *testing.T, c processor, key string, processes int) *groupWorld {
	w := &groupWorld{t: t, redis: c, key: key, now: began}
	w.oracle = throttle.WithClock(throttle.NewFixedWindow(groupLimit), clockFunc(func() time.Time { return w.now }))
	for range processes {
		w.processes = append(w.processes, w.newProcess())
	}
	return w
}

func (w *groupWorld) newProcess() *groupProcess {
	p := &groupProcess{w: w}
	s := &Store{Client: groupClient{groupProcess: p}, Prefix: w.key, Clock: clockFunc(func() time.Time { return w.now }), useLocalClock: true}
	p.limit = s.FixedWindow(groupLimit)
	return p
}

// await lets other goroutines run until done.
func (w *groupWorld) await(done func() bool) {
	for !done() {
		runtime.Gosched()
	}
}

// claim makes a claim of a caller, and returns when it waits or has sent a command.
func (p *groupProcess) claim(cost int64) {
	ctx, cancel := context.WithCancel(p.w.t.Context())
	c := &groupClaim{cost: cost, cancel: cancel, returned: make(chan struct{})}
	before := len(p.waiting)
	p.waiting = append(p.waiting, c)
	go func() {
		defer close(c.returned)
		c.decision, c.err = p.limit.Reserve(ctx, throttle.Claim{Cost: cost})
	}()
	p.w.ended = append(p.w.ended, c)
	p.w.await(func() bool {
		p.adopt()
		return p.queued() > before || len(p.waiting) <= before
	})
}

// roundTrips returns the number of round trips of p that are under way.
func (p *groupProcess) roundTrips() int {
	g := p.limit.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.all.roundTrips
	for _, q := range g.byKey {
		n += q.roundTrips
	}
	return n
}

// queued returns the number of calls that wait for others of p.
func (p *groupProcess) queued() int {
	g := p.limit.groups
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.all.queue)
	for _, q := range g.byKey {
		n += len(q.queue)
	}
	return n
}

// adopt assigns the claims that wait to the commands that have arrived since: the commands of a process
// have its claims in the order of their arrival.
func (p *groupProcess) adopt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.arriving {
		n := 0
		for _, sent := range sentClaims(c.cmd) {
			n += sent.times
		}
		c.claims, p.waiting = p.waiting[:n:n], p.waiting[n:]
		p.sent = append(p.sent, c)
	}
	p.arriving = nil
}

// execute lets the server decide on the oldest command of p, as of now.
func (p *groupProcess) execute() {
	c := p.sent[0]
	p.sent = p.sent[1:]
	for _, sent := range sentClaims(c.cmd) {
		copy(sent.last, appendFloats(nil, float64(p.w.now.UnixMicro()))) // the server's clock, see lua/head.lua
	}
	err := p.w.redis.Process(p.w.t.Context(), c.cmd)
	if redis.HasErrorPrefix(err, "NOSCRIPT") { // the client sends the text
		c.done <- err
		p.waiting = append(c.claims, p.waiting...)
		p.w.await(func() bool { p.adopt(); return len(p.sent) > 0 })
		p.execute()
		return
	}
	require.NoError(p.w.t, err)
	for _, claim := range c.claims {
		d, err := p.w.oracle.Reserve(p.w.t.Context(), throttle.Claim{Cost: claim.cost, Now: p.w.now})
		require.NoError(p.w.t, err)
		claim.want = &d
	}
	p.executed = append(p.executed, c)
}

// deliver lets the oldest reply to p arrive, or be lost.
func (p *groupProcess) deliver(err error) {
	c := p.executed[0]
	p.executed = p.executed[1:]
	p.finish(c, err)
}

// loseCommand loses the oldest command of p.
func (p *groupProcess) loseCommand() {
	c := p.sent[0]
	p.sent = p.sent[1:]
	p.finish(c, errLost)
}

// finish ends c, and waits until its callers have returned, its round trip has ended, and the claims that waited are sent.
func (p *groupProcess) finish(c *groupCommand, err error) {
	c.done <- err
	for _, claim := range c.claims {
		claim.lost = err != nil
		<-claim.returned
	}
	p.w.await(func() bool {
		p.adopt()
		return p.roundTrips() == len(p.sent)+len(p.executed)
	})
}

// withdraw ends the context of the claim of p that arrived last, and waits until it has returned.
func (p *groupProcess) withdraw() {
	last := len(p.waiting) - 1
	c := p.waiting[last]
	p.waiting = p.waiting[:last]
	c.canceled = true
	c.cancel()
	<-c.returned
}

// crash replaces process i. What it has sent is lost, if the server has not executed it.
func (w *groupWorld) crash(i int) {
	p := w.processes[i]
	w.processes[i] = w.newProcess()
	w.endAll(p, errLost)
}

// endAll lets all commands of p end.
func (w *groupWorld) endAll(p *groupProcess, err error) {
	for p.adopt(); len(p.sent)+len(p.executed) > 0; p.adopt() {
		switch {
		case len(p.executed) > 0:
			p.deliver(err)
		case err != nil:
			p.loseCommand()
		default:
			p.execute()
		}
	}
}

// check checks what the callers got.
func (w *groupWorld) check(history string) {
	for i, c := range w.ended {
		<-c.returned
		c.cancel()
		switch {
		case c.canceled:
			require.ErrorIs(w.t, c.err, context.Canceled, "claim %d\n%s", i, history)
			require.Nil(w.t, c.want, "claim %d was withdrawn and is executed\n%s", i, history)
		case c.lost:
			require.ErrorIs(w.t, c.err, errLost, "claim %d\n%s", i, history)
			require.ErrorIs(w.t, c.err, ErrUncertain, "claim %d\n%s", i, history)
		default:
			require.NoError(w.t, c.err, "claim %d\n%s", i, history)
			require.NotNil(w.t, c.want, "claim %d\n%s", i, history)
			require.Equal(w.t, []any{c.want.OK, c.want.Remaining, c.want.Wait}, []any{c.decision.OK, c.decision.Remaining, c.decision.Wait}, "claim %d of %d units\n%s", i, c.cost, history)
		}
	}
	for i, p := range w.processes {
		require.Zero(w.t, p.roundTrips(), "process %d\n%s", i, history)
		require.Zero(w.t, p.queued(), "process %d\n%s", i, history)
	}
}

// A groupEvent is something that may happen in a groupWorld. happen returns false if it cannot.
type groupEvent struct {
	name   string
	happen func(*groupWorld) bool
}

func groupEvents(processes int) (all []groupEvent) {
	for i := range processes {
		on := func(name string, possible func(*groupProcess) bool, f func(*groupProcess)) {
			all = append(all, groupEvent{fmt.Sprintf("%d %s", i, name), func(w *groupWorld) bool {
				p := w.processes[i]
				if !possible(p) {
					return false
				}
				f(p)
				return true
			}})
		}
		always := func(*groupProcess) bool { return true }
		sent := func(p *groupProcess) bool { return len(p.sent) > 0 }
		executed := func(p *groupProcess) bool { return len(p.executed) > 0 }
		waits := func(p *groupProcess) bool { return len(p.waiting) > 0 }
		on("claims 1", always, func(p *groupProcess) { p.claim(1) })
		on("claims 2", always, func(p *groupProcess) { p.claim(2) })
		on("is executed", sent, (*groupProcess).execute)
		on("gets its reply", executed, func(p *groupProcess) { p.deliver(nil) })
		on("loses its reply", executed, func(p *groupProcess) { p.deliver(errLost) })
		on("loses its command", sent, (*groupProcess).loseCommand)
		on("withdraws the last claim", waits, (*groupProcess).withdraw)
		on("crashes", func(p *groupProcess) bool { return sent(p) || executed(p) }, func(p *groupProcess) { p.w.crash(i) })
	}
	return append(all, groupEvent{"the window ends", func(w *groupWorld) bool {
		w.now = w.now.Truncate(time.Second).Add(time.Second)
		return true
	}})
}

// In every order of claims, executions, replies, losses, withdrawals, crashes and ends of windows, each
// claim is decided on as it would be alone, once, in the order in which the server executes commands
// and each of them lists its claims.
func TestGroups_everyOrder(t *testing.T) {
	c := client(t)
	prefix := newTestStore(t).Prefix
	depth := 6
	if testing.Short() {
		depth = 4
	}
	sequences := 0
	for processes := 1; processes <= 3; processes++ {
		events := groupEvents(processes)
		digits := make([]int, depth+1-processes)
		for done := false; !done; {
			sequences++
			w := newGroupWorld(t, c, fmt.Sprint(prefix, processes, sequences), processes)
			var h strings.Builder
			change := len(digits) - 1 // the event that the next sequence changes
			for i, d := range digits {
				if !events[d].happen(w) {
					change = i
					break
				}
				h.WriteString(events[d].name + "; ")
			}
			for _, p := range w.processes {
				w.endAll(p, nil)
			}
			w.check(h.String())
			done = true
			for i := range digits[change+1:] {
				digits[change+1+i] = 0
			}
			for i := change; i >= 0; i-- {
				if digits[i]++; digits[i] < len(events) {
					done = false
					break
				}
				digits[i] = 0
			}
		}
	}
	t.Logf("%d sequences of events", sequences)
}
