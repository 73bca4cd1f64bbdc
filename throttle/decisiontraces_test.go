package throttle_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

var update = flag.Bool("update", false, "write testdata/decisions.txt")

// TestLimiters_decisionsStayAsTheyAre compares all numbers of the decisions of each limiter on a
// random sequence of claims, cancellations, corrected costs and changed limits with
// testdata/decisions.txt. The other tests state which decisions are correct; this one shows the
// effect of a change in a diff. go test -run decisionsStayAsTheyAre -update writes the file.
func TestLimiters_decisionsStayAsTheyAre(t *testing.T) {
	ten := throttle.Limit{Count: 10, Per: time.Minute}
	anchor := time.Date(2026, 3, 1, 11, 59, 48, 0, time.UTC)
	var got strings.Builder
	for i, l := range []throttle.Limiter{
		throttle.NewTokenBucket(ten),
		throttle.NewTokenBucket(throttle.Limit{Count: 7, Per: time.Minute, Burst: 3}),
		throttle.NewTokenBucket(throttle.Limit{Count: 3, Per: time.Second, Burst: 20}),
		throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: ten.WithBurst(2), Queue: 5}),
		throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: ten.WithBurst(4), Queue: 3, Split: true}),
		throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: ten.WithBurst(25), InitialDeficit: 15}),
		throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 3, Per: 20 * time.Second, Burst: 7}, Anchor: anchor}),
		throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Minute}),
		throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Minute, Align: throttle.AtCreation}),
		throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Minute, Align: throttle.AtFirst}),
		throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 50, Align: throttle.EachDay, Zone: time.FixedZone("", 12*3600-130)}),
		throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten}),
		throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten, MinGap: 4 * time.Second}),
		throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten, CountRefused: true}),
		throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: ten}),
		throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: ten, RoundDown: true}),
		throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: ten, Parts: 5}),
		throttle.NewTickQueue(throttle.TickQueueConfig{Limit: ten, Queue: 6, Anchor: anchor}),
		throttle.NewNginx(throttle.NginxConfig{Rate: 10, Per: time.Minute, Burst: 5}),
		throttle.NewNginx(throttle.NginxConfig{Rate: 10, Per: time.Minute, Burst: 6, Delay: 3}),
		throttle.NewNginx(throttle.NginxConfig{Rate: 7, Per: time.Minute, Burst: 6, NoDelay: true}),
		throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 6, MaxAge: 30 * time.Second}),
		&throttle.SoftLimit{Soft: throttle.NewTokenBucket(ten.WithBurst(3)), Hard: throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten})},
		throttle.AllOf(throttle.NewTokenBucket(ten.WithBurst(3)), throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten})),
	} {
		fmt.Fprintf(&got, "# %d: %T\n", i, l)
		traceOf(t, &got, l, uint64(i))
	}
	const file = "testdata/decisions.txt"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got.String())
}

// traceOf writes a line for each of 120 random operations.
func traceOf(t *testing.T, to *strings.Builder, l throttle.Limiter, seed uint64) {
	type claimed struct {
		throttle.Claim
		d throttle.Decision
	}
	clk := &manualClock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	l = throttle.WithClock(l, clk)
	start, rng := clk.now, rand.New(rand.NewPCG(seed, 7))
	upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
	var granted []claimed
	for range 120 {
		clk.now = clk.now.Add([]time.Duration{0, 0, 0, upTo(8 * time.Second), upTo(8 * time.Second), upTo(25 * time.Second), upTo(150 * time.Second)}[rng.IntN(7)])
		now := time.Time{}
		if rng.IntN(12) == 0 {
			now = clk.now.Add(-upTo(20 * time.Second)) // an older reading
		}
		fmt.Fprintf(to, "%v ", clk.now.Sub(start))
		switch op := rng.IntN(20); {
		case op < 13 || len(granted) == 0:
			c := throttle.Claim{Cost: []int64{0, 1, 1, 2, 3, 5, 8, 30}[rng.IntN(8)], Now: now, DryRun: rng.IntN(8) == 0}
			if rng.IntN(8) == 0 {
				c.Waits, c.Waited = true, upTo(10*time.Second)
			}
			ahead := time.Duration(-1)
			var d throttle.Decision
			var err error
			if b, ok := l.(throttle.Booker); ok && rng.IntN(2) == 0 {
				ahead = upTo(40 * time.Second)
				d, err = b.ReserveAhead(t.Context(), c, ahead)
			} else {
				d, err = l.Reserve(t.Context(), c)
			}
			require.NoError(t, err)
			if d.OK && !c.DryRun {
				granted = append(granted, claimed{c, d})
			}
			fmt.Fprintf(to, "reserve %d%s: %s\n", c.Cost, options(c, ahead), outcome(d, clk.now))
		case op < 16:
			i := rng.IntN(len(granted))
			c := granted[i]
			granted = append(granted[:i], granted[i+1:]...)
			c.Now = now
			l.Cancel(t.Context(), c.Claim, c.d)
			fmt.Fprintf(to, "cancel %d of %v\n", c.Cost, c.d.At.Sub(start))
		case op < 19:
			c := granted[rng.IntN(len(granted))]
			f := throttle.Feedback{Now: now, Cost: rng.Int64N(6), Partial: rng.IntN(4) == 0}
			throttle.Observe(t.Context(), l, c.Claim, c.d, f)
			fmt.Fprintf(to, "cost %d of %d of %v", f.Cost, c.Cost, c.d.At.Sub(start))
			if f.Partial {
				to.WriteString(", partial")
			}
			to.WriteByte('\n')
		default:
			limit := throttle.Limit{Count: 5 + rng.Int64N(10), Per: []time.Duration{time.Minute, 45 * time.Second}[rng.IntN(2)]}
			if s, ok := l.(interface{ SetLimit(throttle.Limit) error }); ok {
				require.NoError(t, s.SetLimit(limit))
			}
			fmt.Fprintf(to, "limit %v\n", limit)
		}
	}
}

// options returns what a claim has besides its cost.
func options(c throttle.Claim, ahead time.Duration) (s string) {
	if c.DryRun {
		s = " dry"
	}
	if c.Waits {
		s += fmt.Sprint(" waited ", c.Waited)
	}
	if ahead >= 0 {
		s += fmt.Sprint(" ahead ", ahead)
	}
	return s
}

// outcome returns the numbers of d.
func outcome(d throttle.Decision, now time.Time) (s string) {
	switch {
	case d.OK:
		s = "ok"
	case d.Wait == throttle.Forever:
		s = "never"
	}
	if d.Wait > 0 && d.Wait < throttle.Forever {
		s += fmt.Sprint(" in ", d.Wait)
	}
	s += fmt.Sprintf(", %d/%d", d.Remaining, d.Limit)
	if d.ResetAfter > 0 {
		s += fmt.Sprint(", all in ", d.ResetAfter)
	}
	s += fmt.Sprint(", per ", d.Per)
	if d.OverLimit {
		s += ", over"
	}
	if !d.At.Equal(now) {
		s += fmt.Sprint(", at ", d.At.Sub(now))
	}
	return s
}
