package throttle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A naiveLog counts units one by one.
type naiveLog struct {
	count, per, gap int64
	units           []int64 // the instant of each unit, ascending
	last            int64   // instant of the latest claim in the log
	any             bool
}

func (l *naiveLog) inUse(now int64) (n int64) {
	for _, at := range l.units {
		if at > now-l.per {
			n++
		}
	}
	return n
}

// wait returns the first time from now on at which n units are granted.
func (l *naiveLog) wait(n, now int64) time.Duration {
	if n > l.count {
		return Forever
	}
	for at := now; ; at++ {
		if l.inUse(at)+n <= l.count && (!l.any || at >= l.last+l.gap) {
			return time.Duration(at - now)
		}
	}
}

// take adds n units and keeps the newest count of them.
func (l *naiveLog) take(n, now int64) {
	n = min(n, l.count)
	l.units = append(l.units, slices.Repeat([]int64{now}, int(n))...)
	l.last, l.any = now, true
}

func (l *naiveLog) keepNewest() {
	if extra := len(l.units) - int(l.count); extra > 0 {
		l.units = l.units[extra:]
	}
}

// adjust adds n units at an instant, or removes -n of them.
func (l *naiveLog) adjust(n, at int64) {
	for ; n < 0; n++ {
		if i := slices.Index(l.units, at); i >= 0 {
			l.units = slices.Delete(l.units, i, i+1)
		}
	}
	if slices.Contains(l.units, at) {
		l.units = append(l.units, slices.Repeat([]int64{at}, int(n))...)
		slices.Sort(l.units)
	}
}

// Random claims, cancels and costs have the same results as in a list of units.
func TestSlidingLog_agreesWithAListOfUnits(t *testing.T) {
	for name, tt := range map[string]struct {
		countRejected, settles bool
		gap                    int64
	}{
		"grants":                    {},
		"grants and cancels":        {settles: true},
		"rejections count":          {countRejected: true},
		"a gap":                     {gap: 7},
		"rejections count, and gap": {countRejected: true, gap: 7},
	} {
		seeds := uint64(20)
		if testing.Short() {
			seeds = 6
		}
		for seed := range seeds {
			r := rand.New(rand.NewPCG(seed, 7))
			l := WithClock(NewSlidingLog(SlidingLogConfig{
				Limit: Limit{Count: 12, Per: 40}, CountRejected: tt.countRejected, MinGap: time.Duration(tt.gap),
			}), at(0))
			m := &naiveLog{count: 12, per: 40, gap: tt.gap}
			type claim struct {
				n int64
				d Decision
			}
			var granted []claim
			now := int64(0)
			for step := range 300 {
				what := fmt.Sprintf("%s, seed %d, step %d", name, seed, step)
				now += []int64{0, 0, 1, 3, 12}[r.IntN(5)]
				n := 1 + r.Int64N(5)
				if r.IntN(30) == 0 {
					n = 13
				}
				waits := r.IntN(4) == 0
				want := m.wait(n, now)
				if i := r.IntN(6); tt.settles && i < 2 && len(granted) > 0 {
					old := granted[r.IntN(len(granted))]
					if i == 0 {
						l.Report(t.Context(), Claim{Cost: old.n}, old.d, Feedback{State: Unused})
						m.adjust(-old.n, old.d.At.UnixNano())
					} else {
						l.Report(t.Context(), Claim{Cost: old.n}, old.d, Feedback{Cost: old.n + 1})
						m.adjust(1, old.d.At.UnixNano())
					}
					continue
				}
				d, err := l.Reserve(t.Context(), Claim{Cost: n, Now: time.Unix(0, now), Waits: waits})
				require.NoError(t, err)
				require.Equal(t, want == 0, d.OK, what)
				switch {
				case d.OK:
					m.take(n, now)
					granted = append(granted, claim{n, d})
				case tt.countRejected && !waits:
					m.take(n, now)
					m.keepNewest()
					want = m.wait(n, now)
				}
				require.Equal(t, want, d.Wait, what)
				require.Equal(t, max(12-m.inUse(now), 0), d.Remaining, what)
				reset := time.Duration(0)
				if m.inUse(now) > 0 {
					reset = time.Duration(m.units[len(m.units)-1] + 40 - now)
				}
				require.Equal(t, reset, d.ResetAfter, what)
				if tt.settles || d.Wait > 0 {
					continue
				}
				distinct := slices.Compact(slices.Clone(m.units))
				distinct = slices.DeleteFunc(distinct, func(at int64) bool { return at <= now-40 })
				require.Equal(t, len(distinct), l.(*slidingLog).entries.len(), "%s: claims at one instant share an entry", what)
			}
		}
	}
}

// A naiveRefill refills at each tick, one tick after another.
type naiveRefill struct {
	tick, free, refilled int64
	count, burst         int64
}

func (m *naiveRefill) advance(tick int64) {
	for ; m.tick < tick; m.tick++ {
		m.free, m.refilled = min(m.free+m.count, m.burst), m.refilled+m.count
	}
}

// Random claims, cancels and costs have the same results as refilling tick by tick. A canceled
// claim returns what was not refilled since its grant.
func TestRefillBucket_agreesWithTicks(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		m := &naiveRefill{count: 1 + r.Int64N(4)}
		m.burst = m.count + r.Int64N(8)
		deficit := r.Int64N(m.burst + 1)
		m.free = m.burst - deficit
		clk := at(0)
		b := WithClock(NewRefillBucket(RefillBucketConfig{
			Limit: Limit{Count: m.count, Per: 10, Burst: m.burst}, InitialDeficit: deficit,
		}), clk)
		type claim struct {
			n, refilled int64
			d           Decision
		}
		var granted []claim
		now := int64(0)
		for step := range 200 {
			what := fmt.Sprintf("seed %d, step %d", seed, step)
			now += r.Int64N(3) * r.Int64N(15)
			clk.now = time.Unix(0, now)
			m.advance(now / 10)
			if i := r.IntN(8); i < 3 && len(granted) > 0 {
				k := r.IntN(len(granted))
				old := granted[k]
				back := max(old.n-(m.refilled-old.refilled), 0)
				switch i {
				case 0:
					b.Report(t.Context(), Claim{Cost: old.n}, old.d, Feedback{State: Unused})
					m.free = min(m.free+back, m.burst)
				case 1:
					b.Report(t.Context(), Claim{Cost: old.n}, old.d, Feedback{Cost: old.n + 2})
					m.free -= 2
				case 2:
					if old.n < 2 {
						continue
					}
					b.Report(t.Context(), Claim{Cost: old.n}, old.d, Feedback{Cost: 1})
					m.free = min(m.free+max(old.n-1-(m.refilled-old.refilled), 0), m.burst)
				}
				granted = slices.Delete(granted, k, k+1)
			}
			n := 1 + r.Int64N(m.burst)
			d := ask(b, n, 0)
			require.Equal(t, n <= m.free, d.OK, what)
			if d.OK {
				m.free -= n
				granted = append(granted, claim{n, m.refilled, d})
			} else {
				w := *m
				for w.free < n {
					w.advance(w.tick + 1)
				}
				require.Equal(t, time.Duration(w.tick*10-now), d.Wait, what)
			}
			require.Equal(t, max(m.free, 0), d.Remaining, what)
		}
	}
}

// TickQueue books ticks like a list of the ticks that are taken: each claim gets the first
// ticks that are free after all others, and only the last claim returns its ticks.
func TestTickQueue_agreesWithAListOfTicks(t *testing.T) {
	const queue = 6
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 7))
		clk := at(0)
		q := WithClock(NewTickQueue(TickQueueConfig{Limit: Limit{Count: 3, Per: 100}, Queue: queue}), clk)
		tickTime := func(k int64) int64 { return (k*100 + 2) / 3 } // in whole nanoseconds, rounded up
		last, now := int64(0), int64(0)                            // number of the last tick that is taken
		type claim struct {
			n, tick int64
			d       Decision
		}
		var granted []claim
		for step := range 200 {
			what := fmt.Sprintf("seed %d, step %d", seed, step)
			now += r.Int64N(2) * r.Int64N(70)
			clk.now = time.Unix(0, now)
			tick := now * 3 / 100 // the latest tick
			if r.IntN(4) == 0 && len(granted) > 0 {
				c := granted[r.IntN(len(granted))]
				q.Report(t.Context(), Claim{Cost: c.n}, c.d, Feedback{State: Unused})
				if c.tick == last {
					last -= c.n
				}
				granted = slices.DeleteFunc(granted, func(x claim) bool { return x == c })
			}
			n := 1 + r.Int64N(queue)
			from := max(last, tick)
			d := ask(q, n, Forever)
			require.Equal(t, from+n-tick <= queue, d.OK, what)
			if d.OK {
				last = from + n
				require.Equal(t, time.Duration(tickTime(last)-now), d.Wait, what)
				granted = append(granted, claim{n, last, d})
			} else {
				require.Equal(t, time.Duration(tickTime(from+n-queue)-now), d.Wait, what)
			}
			require.Equal(t, max(queue-max(last-tick, 0), 0), d.Remaining, what)
			require.Equal(t, time.Duration(max(tickTime(last)-now, 0)), d.ResetAfter, what)
		}
	}
}

// A claim that has waited is granted at its tick. A Cancel at that instant does not return the
// tick, so that two callers do not start at one tick.
func TestTickQueue_canceledTicksAreNotGrantedAgain(t *testing.T) {
	clk := at(250 * time.Millisecond)
	q := WithClock(NewTickQueue(TickQueueConfig{Limit: PerSecond(10), Queue: 3, Anchor: time.Unix(0, 0)}), clk)
	c := Claim{Waits: true, Waited: 200 * time.Millisecond}
	d, err := q.Reserve(t.Context(), c)
	require.NoError(t, err)
	require.True(t, d.OK)
	q.Report(t.Context(), c, d, Feedback{Now: c.Now, State: Unused})
	d, err = q.Reserve(t.Context(), c)
	require.NoError(t, err)
	require.False(t, d.OK)
	require.Equal(t, 50*time.Millisecond, d.Wait)
}

// Feedback that confirms the cost of a claim takes no tick from callers that wait.
func TestTickQueue_confirmedCostsTakeNoTick(t *testing.T) {
	clk := at(250 * time.Millisecond)
	q := WithClock(NewTickQueue(TickQueueConfig{Limit: PerSecond(10), Queue: 3, Anchor: time.Unix(0, 0)}), clk)
	c := Claim{Waits: true, Waited: 100 * time.Millisecond}
	d, err := q.Reserve(t.Context(), c)
	require.NoError(t, err)
	require.True(t, d.OK)
	clk.now = clk.now.Add(200 * time.Millisecond)
	q.Report(t.Context(), c, d, Feedback{Cost: 1})
	d, err = q.Reserve(t.Context(), c)
	require.NoError(t, err)
	require.True(t, d.OK, "the tick at 400 ms")
}
