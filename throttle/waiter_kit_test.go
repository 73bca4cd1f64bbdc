package throttle

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// ticket returns a Ticket that demands one unit of each limiter.
func ticket(ls ...Limiter) *Ticket {
	t := new(Ticket)
	for _, l := range ls {
		t.Add(Demand{Limiter: l})
	}
	return t
}

func bucket(every time.Duration, burst int64) *TokenBucket {
	return NewTokenBucket(Limit{Name: every.String(), Count: 1, Per: every, Burst: burst}, nil)
}

// A gateLimiter grants everything, but nothing before until.
type gateLimiter struct {
	mu    sync.Mutex
	until time.Time
	told  bool
}

func (g *gateLimiter) Reserve(_ context.Context, c Claim) (Decision, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait := max(g.until.Sub(c.Now), 0)
	return Decision{OK: wait == 0, Policy: "gate", At: c.Now, Wait: wait, Told: g.told && wait > 0}, nil
}
func (*gateLimiter) Local() bool                             { return true }
func (*gateLimiter) Cancel(context.Context, Claim, Decision) {}
func (g *gateLimiter) set(until time.Time) {
	g.mu.Lock()
	g.until = until
	g.mu.Unlock()
}

// slots grants n claims that have not ended yet, and cannot know when they will.
type slots struct {
	mu   sync.Mutex
	free int64
}

func (s *slots) Reserve(_ context.Context, c Claim) (Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return Decision{Policy: "slots", At: c.Now}, nil
	}
	if !c.DryRun {
		s.free--
	}
	return Decision{OK: true, Policy: "slots", At: c.Now}, nil
}
func (*slots) Local() bool                               { return true }
func (s *slots) Cancel(context.Context, Claim, Decision) { s.end() }
func (s *slots) Observe(_ context.Context, _ Claim, _ Decision, f Feedback) {
	if !f.More {
		s.end()
	}
}
func (s *slots) end() {
	s.mu.Lock()
	s.free++
	s.mu.Unlock()
}

// A diary notes when things happened, from its start.
type diary struct {
	mu    sync.Mutex
	start time.Time
	notes map[string][]time.Duration
	order []string
}

func newDiary() *diary {
	return &diary{start: time.Now(), notes: map[string][]time.Duration{}}
}

func (d *diary) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notes[what] = append(d.notes[what], time.Since(d.start))
	d.order = append(d.order, what)
}

func (d *diary) last(what string) time.Duration {
	return d.notes[what][len(d.notes[what])-1]
}

func idle(t *testing.T, w *Waiter) {
	t.Helper()
	w.once.Do(w.init)
	w.mu.Lock()
	defer w.mu.Unlock()
	require.Zero(t, w.crowd.Load()&^shut)
	require.Empty(t, w.lines)
	require.Empty(t, w.gates)
	require.Zero(t, w.due.len())
	require.Zero(t, w.deadlines.len())
	require.Equal(t, int64(never), w.alarm.at)
}

// far is a limiter that is not known to be local, and takes a while to answer.
type far struct {
	Limiter
	takes time.Duration
}

func (l *far) Reserve(ctx context.Context, c Claim) (Decision, error) {
	time.Sleep(l.takes)
	return l.Limiter.Reserve(ctx, c)
}
func (l *far) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	Observe(ctx, l.Limiter, c, d, f)
}
func (*far) Local() bool { return false }

// everyWay runs test in a bubble with limiters that the Waiter asks itself, and
// with some that the callers ask.
func everyWay(t *testing.T, test func(t *testing.T, as func(Limiter) Limiter)) {
	synctest.Test(t, func(t *testing.T) { test(t, func(l Limiter) Limiter { return l }) })
	synctest.Test(t, func(t *testing.T) { test(t, func(l Limiter) Limiter { return &far{Limiter: l} }) })
}
