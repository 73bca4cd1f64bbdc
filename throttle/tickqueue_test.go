package throttle

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTickQueue_grantsOneUnitPerTick(t *testing.T) {
	clk := at(100 * time.Millisecond)
	q := WithClock(NewTickQueue(TickQueueConfig{Limit: Limit{Count: 2, Per: time.Second}, Queue: 4, Anchor: time.Unix(0, 0)}), clk)
	for i := range 4 {
		d := ask(q, 1, Forever)
		require.True(t, d.OK)
		require.Equal(t, time.Duration(4+5*i)*100*time.Millisecond, d.Wait)
		require.EqualValues(t, 3-i, d.Remaining)
	}
	require.Equal(t, 400*time.Millisecond, ask(q, 1, Forever).Wait, "until one is served")
	clk.now = time.Unix(0, 5e8)
	require.Equal(t, 2*time.Second, ask(q, 1, Forever).Wait, "who comes at a tick finds its unit gone, and waits for a later one")
	require.Equal(t, Forever, ask(q, 5, Forever).Wait)
}

func TestTickQueue_rejectsForeverWhenMaxWaitIsTooShort(t *testing.T) {
	clk := at(0)
	q := WithClock(NewTickQueue(TickQueueConfig{Limit: PerSecond(1), Queue: 9}), clk)
	require.Equal(t, Forever, ask(q, 1, 0).Wait, "everybody waits for a tick")
	require.Equal(t, Forever, ask(q, 3, 2*time.Second).Wait, "three take longer, whenever they come")
	require.Equal(t, 900*time.Millisecond, ask(q, 1, 100*time.Millisecond).Wait, "just before the tick will do")
	clk.now = clk.now.Add(900 * time.Millisecond)
	require.True(t, ask(q, 1, 100*time.Millisecond).OK)
	require.Equal(t, time.Second, ask(q, 1, 100*time.Millisecond).Wait)
}

func TestTickQueue_onlyTheLastClaimIsRefunded(t *testing.T) {
	clk := at(0)
	q := WithClock(NewTickQueue(TickQueueConfig{Limit: PerSecond(1), Queue: 9}), clk)
	first, last := ask(q, 3, Forever), ask(q, 2, Forever)
	q.Report(t.Context(), Claim{Cost: 3}, first, Feedback{State: Unused})
	require.EqualValues(t, 4, remaining(q), "the last keeps its ticks")
	q.Report(t.Context(), Claim{Cost: 2}, last, Feedback{Cost: 1})
	require.EqualValues(t, 5, remaining(q))
	q.Report(t.Context(), Claim{Cost: 3}, first, Feedback{Cost: 5})
	require.EqualValues(t, 3, remaining(q), "what cost more stands at the end")
	clk.now = clk.now.Add(time.Hour)
	q.Report(t.Context(), Claim{Cost: 2}, last, Feedback{State: Unused})
	require.EqualValues(t, 9, remaining(q))
}

// In random sequences of claims and cancels, no tick serves two units, and a claim after
// the Wait of a rejection is granted.
func TestTickQueue_noTickIsGrantedTwice(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		clk := at(0)
		q := WithClock(NewTickQueue(TickQueueConfig{Limit: Limit{Count: 3, Per: time.Second}, Queue: 1 + r.Int64N(9)}), clk)
		granted := map[int64]bool{}
		for range 40 {
			clk.now = clk.now.Add(time.Duration(r.Int64N(2) * r.Int64N(1e9)))
			c, maxWait := Claim{Cost: 1 + r.Int64N(3)}, time.Duration(r.Int64N(4e9))
			d := ask(q, c.Cost, maxWait)
			if !d.OK {
				if d.Wait != Forever && r.IntN(2) == 0 {
					clk.now = clk.now.Add(d.Wait)
					require.True(t, ask(q, c.Cost, maxWait).OK, "seed %d: after that wait", seed)
					break
				}
				continue
			}
			require.LessOrEqual(t, d.Wait, maxWait)
			if r.IntN(4) == 0 {
				q.Report(t.Context(), c, d, Feedback{Now: c.Now, State: Unused})
				continue
			}
			for i := range c.Cost {
				tick := int64(d.Grant) - i
				require.False(t, granted[tick], "seed %d", seed)
				granted[tick] = true
			}
		}
	}
}

// TestTickQueue_waitsAreNeverNegative checks the fastest queue that is valid with extreme costs and times.
func TestTickQueue_waitsAreNeverNegative(t *testing.T) {
	for _, per := range []time.Duration{1, 1000, time.Second} {
		for _, queue := range []int64{1, math.MaxInt64} {
			q := NewTickQueue(TickQueueConfig{Limit: Limit{Count: int64(per), Per: per}, Queue: queue})
			for _, at := range []time.Time{{}, time.Unix(0, 0), time.Now(), time.Now().Add(math.MaxInt64), time.Now().Add(math.MinInt64), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)} {
				for _, cost := range []int64{0, 1, 7, math.MaxInt64} {
					for _, waits := range []bool{false, true} {
						c := Claim{Cost: cost, Now: at, Waits: waits}
						d, err := ReserveAhead(t.Context(), q, c, Forever)
						require.NoError(t, err)
						require.GreaterOrEqual(t, d.Wait, time.Duration(0), "%+v: %+v", c, d)
						require.GreaterOrEqual(t, d.ResetAfter, time.Duration(0), "%+v: %+v", c, d)
						require.GreaterOrEqual(t, d.Remaining, int64(0), "%+v: %+v", c, d)
						q.Report(t.Context(), c, d, Feedback{Cost: math.MaxInt64, Now: at})
						q.Report(t.Context(), c, d, Feedback{Now: c.Now, State: Unused})
					}
				}
			}
		}
	}
}
