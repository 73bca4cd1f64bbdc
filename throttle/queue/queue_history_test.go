package queue

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A simulation has several limits, and callers that need some of them and wait, retry, cancel
// and observe at random.
type simulation struct {
	queue    *Queue
	limits   []throttle.Limit
	limiters []throttle.Limiter
	slots    *slotLimiter

	mu       sync.Mutex
	uses     [][]event         // per limit
	arrivals map[int][]arrival // per set of limits needed, as bits
	maxWait  time.Duration     // longest wait of a ticket
}

type event struct {
	at   time.Time
	cost int64
}

type arrival struct {
	arrived int64
	granted time.Time
}

func newSimulation(wrap func(i int, l throttle.Limiter) throttle.Limiter) *simulation {
	s := &simulation{queue: new(Queue), arrivals: map[int][]arrival{}, slots: &slotLimiter{free: 20}}
	for i, l := range []throttle.Limit{
		{Count: 100, Per: time.Second, Burst: 10},
		{Count: 30, Per: time.Second, Burst: 3},
		{Count: 7, Per: 100 * time.Millisecond, Burst: 5},
	} {
		s.limits = append(s.limits, l)
		s.limiters = append(s.limiters, wrap(i, throttle.NewTokenBucket(l)))
	}
	s.uses = make([][]event, len(s.limits))
	return s
}

// runCaller runs n tickets one after another, at random times.
func (s *simulation) runCaller(ctx context.Context, r *rand.Rand, n int) {
	for range n {
		time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
		s.runTicket(ctx, r)
	}
}

func (s *simulation) runTicket(ctx context.Context, r *rand.Rand) {
	t, needs := new(Ticket), 1+r.IntN(1<<len(s.limiters)-1)
	for i, l := range s.limiters {
		if needs&(1<<i) != 0 {
			t.Add(throttle.Demand{Limiter: l, Cost: 1 + r.Int64N(3)})
		}
	}
	if r.IntN(2) == 0 {
		t.Add(throttle.Demand{Limiter: s.slots})
		needs |= 1 << len(s.limiters)
	}
	if r.IntN(5) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		time.AfterFunc(time.Duration(r.Int64N(int64(2*time.Second))), cancel)
	}
	for try := 0; ; try++ {
		if s.queue.Wait(ctx, t) != nil {
			return
		}
		s.recordGrant(t, needs, try)
		if r.IntN(10) == 0 {
			s.queue.Report(ctx, t, throttle.Feedback{State: throttle.Unused})
			return
		}
		s.recordUse(t)
		time.Sleep(time.Duration(r.Int64N(int64(10 * time.Millisecond))))
		s.queue.Report(ctx, t, throttle.Feedback{})
		if r.IntN(4) > 0 {
			return
		}
	}
}

func (s *simulation) recordGrant(t *Ticket, needs, try int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maxWait = max(s.maxWait, t.Waited())
	if try == 0 {
		s.arrivals[needs] = append(s.arrivals[needs], arrival{t.arrival, time.Now()})
	}
}

func (s *simulation) recordUse(t *Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, l := range s.limiters {
		for _, d := range t.Demands {
			if d.Limiter == l {
				s.uses[i] = append(s.uses[i], event{time.Now(), d.Cost})
			}
		}
	}
}

// withinLimit reports whether the uses in each time span are at most what l allows: they are
// if a bucket that is refilled by time alone always has the units.
func withinLimit(l throttle.Limit, uses []event) bool {
	slices.SortFunc(uses, func(a, b event) int { return a.at.Compare(b.at) })
	level, last := float64(l.Burst), uses[0].at
	for _, a := range uses {
		level = min(level+a.at.Sub(last).Seconds()*float64(l.Count)/l.Per.Seconds(), float64(l.Burst))
		last = a.at
		if level -= float64(a.cost); level < -1e-6 {
			return false
		}
	}
	return true
}

// inOrder reports whether the tickets were granted in order of arrival.
func inOrder(as []arrival) bool {
	slices.SortFunc(as, func(a, b arrival) int { return cmp.Compare(a.arrived, b.arrived) })
	return slices.IsSortedFunc(as, func(a, b arrival) int { return a.granted.Compare(b.granted) })
}

func TestQueue_randomHistoriesObeyTheLimits(t *testing.T) {
	for name, as := range map[string]func(int, throttle.Limiter) throttle.Limiter{
		"local":  func(_ int, l throttle.Limiter) throttle.Limiter { return l },
		"remote": func(_ int, l throttle.Limiter) throttle.Limiter { return &remoteLimiter{Limiter: l} },
		"slow remote": func(i int, l throttle.Limiter) throttle.Limiter {
			return &remoteLimiter{l, time.Duration(i) * 3 * time.Millisecond}
		},
	} {
		seeds := 5
		if testing.Short() {
			seeds = 1
		}
		for seed := range uint64(seeds) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(as)
				var wg sync.WaitGroup
				for i := range uint64(150) {
					wg.Go(func() { s.runCaller(t.Context(), rand.New(rand.NewPCG(seed, i)), 10) })
				}
				wg.Wait()
				for i, l := range s.limits {
					require.True(t, name == "slow remote" || withinLimit(l, s.uses[i]), "%s, seed %d: %v", name, seed, l)
				}
				for needs, as := range s.arrivals {
					require.True(t, name != "local" || inOrder(as), "seed %d: line %b", seed, needs)
				}
				require.Less(t, s.maxWait, 2*time.Minute, "nobody starves")
				requireEmpty(t, s.queue)
			})
		}
	}
}

func TestQueue_cancelledByCloseOrContextInAnyState(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		step := uint64(1)
		if testing.Short() {
			step = 3 // an odd number, so that half of the histories are canceled and half are closed
		}
		for seed := uint64(0); seed < 20; seed += step {
			s := newSimulation(func(_ int, l throttle.Limiter) throttle.Limiter { return wrap(l) })
			ctx, cancel := context.WithCancelCause(t.Context())
			var wg sync.WaitGroup
			for i := range uint64(100) {
				wg.Go(func() { s.runCaller(ctx, rand.New(rand.NewPCG(seed, i)), 3) })
			}
			time.Sleep(time.Duration(seed) * 100 * time.Millisecond)
			if seed%2 == 0 {
				cancel(errors.New("stop"))
			} else {
				s.queue.Close()
			}
			wg.Wait()
			cancel(nil)
			requireEmpty(t, s.queue)
			require.EqualValues(t, 20, s.slots.free)
		}
	})
}
