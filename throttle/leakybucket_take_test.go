package throttle

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/gcra"
)

// TestLeakyBucket_takeDecidesAsReserve compares random histories of two buckets, of which one is asked by Take wherever the other
// is asked by Reserve for units without a wait.
func TestLeakyBucket_takeDecidesAsReserve(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	seeds := uint64(400)
	if testing.Short() {
		seeds = 120
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 0))
		l := Limit{Count: 1 + r.Int64N(7), Per: time.Duration(1 + r.Int64N(1e9)), Burst: 1 + r.Int64N(9)}
		config := LeakyBucketConfig{Limit: l, Queue: r.Int64N(2) * r.Int64N(1e6), Split: r.IntN(4) == 0}
		taking, reserving := newLeaky(config), newLeaky(config)
		both := [...]*leakyBucket{taking, reserving}
		type grant struct {
			c Claim
			d [2]Decision
		}
		var grants []grant
		now := start
		for step := range 300 {
			switch r.IntN(20) {
			case 0:
				now = now.Add(time.Duration(r.Int64N(int64(40 * 365 * 24 * time.Hour)))) // beyond what ticks of one state express
			case 1:
				now = now.Add(-time.Duration(r.Int64N(int64(2 * l.Per))))
			case 2, 3, 4, 5:
				now = now.Add(time.Duration(r.Int64N(int64(l.Per))))
			}
			c := Claim{Cost: 1 + r.Int64N(l.Burst+2), Now: now}
			switch op := r.IntN(16); {
			case op < 8:
				d, err := reserving.Reserve(t.Context(), c)
				require.NoError(t, err)
				require.Equal(t, d.OK, taking.Take(now, c.Cost), "seed %d, step %d", seed, step)
			case op < 12:
				c.Ahead, c.DryRun = time.Duration(r.Int64N(int64(9*l.Per))), r.IntN(4) == 0
				g := grant{c: c}
				for i, b := range both {
					d, err := b.Reserve(t.Context(), c)
					require.NoError(t, err)
					g.d[i] = d
				}
				want, got := g.d[1], g.d[0]
				want.At, got.At = want.At.Round(0), got.At.Round(0) // their monotonic parts count from different origins
				require.Equal(t, want, got, "seed %d, step %d", seed, step)
				if g.d[0].OK && !c.DryRun {
					grants = append(grants, g)
				}
			case op < 14 && len(grants) > 0:
				i := r.IntN(len(grants))
				g, f := grants[i], Feedback{Now: now, Cost: r.Int64N(5), State: [...]State{Ended, Unused}[r.IntN(2)]}
				grants = append(grants[:i], grants[i+1:]...)
				for i, b := range both {
					b.Report(t.Context(), g.c, g.d[i], f)
				}
			case op == 14 && r.IntN(4) == 0:
				l.Count = 1 + r.Int64N(7)
				for _, b := range both {
					require.NoError(t, b.SetLimitAt(now, l))
				}
			case op == 15 && r.IntN(4) == 0:
				for _, b := range both {
					b.Drain(now)
				}
			}
			if want, got := reserving.Available(now), taking.Available(now); want != got { // not equal to the last bit
				require.Fail(t, "other units are available", "seed %d, step %d: %v, want %v", seed, step, got, want)
			}
			if taking.bookings.state != taking.state.Load() || taking.bookings.state.tat.Load() == gcra.Closed {
				require.Fail(t, "the state is not that of the bookings", "seed %d, step %d", seed, step)
			}
		}
	}
}

// TestLeakyBucket_takeLosesNoUnit lets callers take, reserve and cancel at one instant, while the state is read. What is granted and
// kept is the burst, to the unit. If one of them books ahead, it is the only one that cancels: units of a claim behind which others are
// booked may be lost, see NewLeakyBucket.
func TestLeakyBucket_takeLosesNoUnit(t *testing.T) {
	burst := int64(2_000_000)
	if testing.Short() {
		burst = 200_000
	}
	for _, ahead := range []bool{false, true} {
		now := time.Unix(1_000_000, 0)
		b := newLeaky(LeakyBucketConfig{Limit: Limit{Count: 3000, Per: time.Hour, Burst: burst}, Queue: 5})
		var kept atomic.Int64
		var wg sync.WaitGroup
		for worker := range uint64(4) {
			wg.Go(func() {
				r, own := rand.New(rand.NewPCG(1, worker)), int64(0)
				defer func() { kept.Add(own) }()
				for rejected := 0; rejected < 100; {
					c := Claim{Cost: 1 + r.Int64N(3), Now: now}
					switch i := r.IntN(8); {
					case i == 0 && (!ahead || worker == 0):
						if ahead {
							c.Ahead = time.Duration(r.Int64N(2)) * 30 * time.Minute
						}
						if d, _ := b.Reserve(context.Background(), c); d.OK {
							b.Report(context.Background(), c, d, Feedback{Now: now, State: Unused})
						}
					case i == 1:
						if d, _ := b.Reserve(context.Background(), c); d.OK {
							own += c.Cost
						}
					case i == 2:
						c.DryRun = true
						_, _ = b.Reserve(context.Background(), c)
						_ = b.Available(now)
					default:
						if b.Take(now, c.Cost) {
							own += c.Cost
						} else {
							rejected++
						}
					}
				}
			})
		}
		wg.Wait()
		for b.Take(now, 1) {
			kept.Add(1)
		}
		require.Equal(t, burst, kept.Load(), "ahead: %v", ahead)
	}
}

// A panickingClock panics while it is on.
type panickingClock struct{ on bool }

func (c *panickingClock) Now() time.Time {
	if c.on {
		panic("clock")
	}
	return time.Unix(1_000_000, 0)
}

func (*panickingClock) After(time.Duration) <-chan time.Time { return nil }

// TestLeakyBucket_aClockThatPanics checks that a bucket works on after its clock has panicked in each method.
func TestLeakyBucket_aClockThatPanics(t *testing.T) {
	c := &panickingClock{}
	b := WithClock(newLeaky(LeakyBucketConfig{Limit: Limit{Count: 1, Per: time.Hour, Burst: 9}}), c)
	claim := Claim{Cost: 1}
	d, err := b.Reserve(t.Context(), claim)
	require.NoError(t, err)
	d.At = time.Time{}
	for range 2 {
		c.on = true
		for _, call := range []func(){
			func() { b.Take(time.Time{}, 1) }, func() { b.Drain(time.Time{}) }, func() { b.Available(time.Time{}) },
			func() { _, _ = b.Reserve(t.Context(), claim) }, func() { _ = b.SetLimit(PerHour(2)) },
			func() { b.Report(t.Context(), claim, d, Feedback{State: Unused}) },
			func() { b.Report(t.Context(), claim, d, Feedback{Cost: 3}) },
		} {
			require.Panics(t, call)
		}
		c.on = false
		require.True(t, b.Take(time.Time{}, 1))
	}
	require.InDelta(t, 9-3, b.Available(time.Time{}), 1e-9)
}
