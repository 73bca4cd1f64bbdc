package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// ticket returns a Ticket that demands one unit of each limiter.
func ticket(ls ...throttle.Limiter) *Ticket {
	t := new(Ticket)
	for _, l := range ls {
		t.Add(throttle.Demand{Limiter: l})
	}
	return t
}

// waitedFor returns the name of the limit that t waited for longest.
func waitedFor(t *Ticket) string {
	limit, _, _ := t.WaitedFor()
	return limit
}

func bucket(every time.Duration, burst int64) throttle.Limiter {
	return throttle.NewTokenBucket(throttle.Limit{Name: every.String(), Count: 1, Per: every, Burst: burst})
}

// A holdLimiter rejects all claims before until, and grants all claims afterwards.
type holdLimiter struct {
	mu            sync.Mutex
	until         time.Time
	serverImposed bool
}

func (g *holdLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	wait := max(g.until.Sub(c.Now), 0)
	d := throttle.Decision{OK: wait == 0, Policy: "hold", At: c.Now, Wait: wait, ServerImposed: g.serverImposed && wait > 0}
	if d.ServerImposed {
		d.Expected = wait // the end is known
	}
	return d, nil
}
func (*holdLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (*holdLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}
func (g *holdLimiter) set(until time.Time) {
	g.mu.Lock()
	g.until = until
	g.mu.Unlock()
}

// A slotLimiter grants as many claims at the same time as it has slots. Its rejections state
// no wait.
type slotLimiter struct {
	mu   sync.Mutex
	free int64
}

func (s *slotLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return throttle.Decision{Policy: "slots", At: c.Now}, nil
	}
	if !c.DryRun {
		s.free--
	}
	return throttle.Decision{OK: true, Policy: "slots", At: c.Now}, nil
}
func (s *slotLimiter) Report(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		s.end()
		return
	}
	if f.State != throttle.Ongoing {
		s.end()
	}
}

// Traits implements throttle.Limiter.
func (*slotLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}
func (s *slotLimiter) end() {
	s.mu.Lock()
	s.free++
	s.mu.Unlock()
}

// An eventLog records the times of events since its start.
type eventLog struct {
	mu    sync.Mutex
	start time.Time
	times map[string][]time.Duration
	order []string
}

func newEventLog() *eventLog {
	return &eventLog{start: time.Now(), times: map[string][]time.Duration{}}
}

func (d *eventLog) record(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.times[what] = append(d.times[what], time.Since(d.start))
	d.order = append(d.order, what)
}

func (d *eventLog) last(what string) time.Duration {
	return d.times[what][len(d.times[what])-1]
}

func requireEmpty(t *testing.T, q *Queue) {
	t.Helper()
	q.initOnce.Do(q.init)
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Zero(t, q.numWaiting.Load()&^closedBit)
	require.Nil(t, q.classes, "its memory is released")
	require.Nil(t, q.limitQueues, "its memory is released")
	require.Zero(t, q.scheduled.Len())
	require.Zero(t, q.deadlines.Len())
	require.Equal(t, int64(never), q.timer.at)
}

// A remoteLimiter may block, and takes delay to decide.
type remoteLimiter struct {
	throttle.Limiter
	delay time.Duration
}

func (l *remoteLimiter) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	time.Sleep(l.delay)
	return l.Limiter.Reserve(ctx, c)
}
func (l *remoteLimiter) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	l.Limiter.Report(ctx, c, d, f)
}

// Traits implements throttle.Limiter.
func (l *remoteLimiter) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = false
	return t
}

// localAndRemote runs test in two synctest bubbles: with non-blocking limiters, which the Queue
// asks in any goroutine, and with limiters that are asked by the callers.
func localAndRemote(t *testing.T, test func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter)) {
	synctest.Test(t, func(t *testing.T) { test(t, func(l throttle.Limiter) throttle.Limiter { return l }) })
	synctest.Test(t, func(t *testing.T) {
		test(t, func(l throttle.Limiter) throttle.Limiter { return &remoteLimiter{Limiter: l} })
	})
}

// A panicky limiter panics in the methods that are set to true.
type panicky struct {
	throttle.Limiter
	reserve, cancel, observe bool
}

func (p *panicky) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if p.reserve {
		panic("limiter")
	}
	return p.Limiter.Reserve(ctx, c)
}
func (p *panicky) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		if p.cancel {
			panic("limiter")
		}
		p.Limiter.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		return
	}
	if p.observe {
		panic("limiter")
	}
	p.Limiter.Report(ctx, c, d, f)
}

// Traits implements throttle.Limiter.
func (l *panicky) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = true
	return t
}
