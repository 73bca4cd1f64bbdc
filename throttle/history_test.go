package throttle

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
)

// A world is some limits, and callers who need various of them and do everything
// that callers do.
type world struct {
	w      *Waiter
	limits []Limit
	ls     []Limiter
	slots  *slots

	mu    sync.Mutex
	acts  [][]event         // by limit
	lines map[int][]arrival // by which limits are needed
	most  time.Duration     // longest wait
}

type event struct {
	at   time.Time
	cost int64
}

type arrival struct {
	turn    int64
	granted time.Time
}

func newWorld(as func(i int, l Limiter) Limiter) *world {
	v := &world{w: new(Waiter), lines: map[int][]arrival{}, slots: &slots{free: 20}}
	for i, l := range []Limit{
		{Count: 100, Per: time.Second, Burst: 10},
		{Count: 30, Per: time.Second, Burst: 3},
		{Count: 7, Per: 100 * time.Millisecond, Burst: 5},
	} {
		v.limits = append(v.limits, l)
		v.ls = append(v.ls, as(i, NewTokenBucket(l, nil)))
	}
	v.acts = make([][]event, len(v.limits))
	return v
}

// caller makes n tickets, one after another, each at an instant of its own.
func (v *world) caller(ctx context.Context, r *rand.Rand, n int) {
	for range n {
		time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
		v.visit(ctx, r)
	}
}

func (v *world) visit(ctx context.Context, r *rand.Rand) {
	t, needs := new(Ticket), 1+r.IntN(1<<len(v.ls)-1)
	for i, l := range v.ls {
		if needs&(1<<i) != 0 {
			t.Add(Demand{Limiter: l, Cost: 1 + r.Int64N(3)})
		}
	}
	if len(t.Demands) > 3 && t.Demands[3].Limiter == nil && r.IntN(2) == 0 {
		t.Add(Demand{Limiter: v.slots})
		needs |= 1 << len(v.ls)
	}
	if r.IntN(5) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		time.AfterFunc(time.Duration(r.Int64N(int64(2*time.Second))), cancel)
	}
	for try := 0; ; try++ {
		if v.w.Wait(ctx, t) != nil {
			return
		}
		v.granted(t, needs, try)
		if r.IntN(10) == 0 {
			v.w.Cancel(ctx, t)
			return
		}
		v.act(t)
		time.Sleep(time.Duration(r.Int64N(int64(10 * time.Millisecond))))
		v.w.Observe(ctx, t, Feedback{})
		if r.IntN(4) > 0 {
			return
		}
	}
}

func (v *world) granted(t *Ticket, needs, try int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.most = max(v.most, t.Waited())
	if try == 0 {
		v.lines[needs] = append(v.lines[needs], arrival{t.turn, time.Now()})
	}
}

func (v *world) act(t *Ticket) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, l := range v.ls {
		for _, d := range t.Demands {
			if d.Limiter == l {
				v.acts[i] = append(v.acts[i], event{time.Now(), d.Cost})
			}
		}
	}
}

// obeys reports whether no span holds more acts than l allows: that is so if a
// bucket that is filled by time alone never lacks the units.
func obeys(l Limit, acts []event) bool {
	slices.SortFunc(acts, func(a, b event) int { return a.at.Compare(b.at) })
	level, last := float64(l.burst()), acts[0].at
	for _, a := range acts {
		level = min(level+a.at.Sub(last).Seconds()*float64(l.Count)/l.Per.Seconds(), float64(l.burst()))
		last = a.at
		if level -= float64(a.cost); level < -1e-6 {
			return false
		}
	}
	return true
}

// inOrder reports whether who came first was granted first.
func inOrder(as []arrival) bool {
	slices.SortFunc(as, func(a, b arrival) int { return cmp.Compare(a.turn, b.turn) })
	return slices.IsSortedFunc(as, func(a, b arrival) int { return a.granted.Compare(b.granted) })
}

func TestWaiter_actsOfAnyHistoryObeyTheLimits(t *testing.T) {
	for name, as := range map[string]func(int, Limiter) Limiter{
		"local":       func(_ int, l Limiter) Limiter { return l },
		"remote":      func(_ int, l Limiter) Limiter { return &far{Limiter: l} },
		"slow remote": func(i int, l Limiter) Limiter { return &far{l, time.Duration(i) * 3 * time.Millisecond} },
	} {
		for seed := range uint64(5) {
			synctest.Test(t, func(t *testing.T) {
				v := newWorld(as)
				var wg sync.WaitGroup
				for i := range uint64(150) {
					wg.Go(func() { v.caller(t.Context(), rand.New(rand.NewPCG(seed, i)), 10) })
				}
				wg.Wait()
				for i, l := range v.limits {
					require.True(t, name == "slow remote" || obeys(l, v.acts[i]), "%s, seed %d: %v", name, seed, l)
				}
				for needs, as := range v.lines {
					require.True(t, name != "local" || inOrder(as), "seed %d: line %b", seed, needs)
				}
				require.Less(t, v.most, 2*time.Minute, "nobody starves")
				idle(t, v.w)
			})
		}
	}
}

func TestWaiter_cancelledByCloseOrContextInAnyState(t *testing.T) {
	everyWay(t, func(t *testing.T, as func(Limiter) Limiter) {
		for seed := range uint64(20) {
			v := newWorld(func(_ int, l Limiter) Limiter { return as(l) })
			ctx, cancel := context.WithCancelCause(t.Context())
			var wg sync.WaitGroup
			for i := range uint64(100) {
				wg.Go(func() { v.caller(ctx, rand.New(rand.NewPCG(seed, i)), 3) })
			}
			time.Sleep(time.Duration(seed) * 100 * time.Millisecond)
			if seed%2 == 0 {
				cancel(errors.New("stop"))
			} else {
				v.w.Close()
			}
			wg.Wait()
			cancel(nil)
			idle(t, v.w)
			require.EqualValues(t, 20, v.slots.free)
		}
	})
}
