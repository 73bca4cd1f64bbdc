// Limiters shows what "5 a minute" means for each of the classic limiters: two bursts at
// the end and the start of a minute, then one request every six seconds. Time is an
// argument, so the program ends immediately.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/heed-go/heed/throttle"
)

var (
	start = time.Date(2026, time.November, 21, 11, 0, 59, 0, time.UTC)
	limit = throttle.Limit{Count: 5, Per: time.Minute}
)

// clk does not advance; each claim states its own time.
var clk = func() *clock.Mock {
	c := clock.NewMock()
	c.Set(start)
	return c
}()

var limiters = []struct {
	name string
	l    throttle.Limiter
}{
	{"token bucket", throttle.WithClock(throttle.NewTokenBucket(limit), clk)},
	{"token bucket, refilled each minute", throttle.WithClock(throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: limit, Anchor: start.Truncate(time.Minute)}), clk)},
	{"leaky bucket, one at a time", throttle.WithClock(throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 5, Per: time.Minute, Burst: 1}}), clk)},
	{"fixed window, by the clock", throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Minute}), clk)},
	{"fixed window, from the first", throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Minute, Align: throttle.AtFirst}), clk)},
	{"sliding log", throttle.WithClock(throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: limit}), clk)},
	{"sliding counter", throttle.WithClock(throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: limit}), clk)},
	{"sliding counter, 6 sub-windows", throttle.WithClock(throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: limit, Parts: 6}), clk)},
}

// arrivals are 5 at 11:00:59, 5 at 11:01:00, and then one every six seconds.
func arrivals() []time.Time {
	var all []time.Time
	for range 5 {
		all = append(all, start)
	}
	for range 5 {
		all = append(all, start.Add(time.Second))
	}
	for i := range 15 {
		all = append(all, start.Add(time.Second+time.Duration(i+1)*6*time.Second))
	}
	return all
}

func main() { compare(os.Stdout) }

func compare(out io.Writer) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "5 a minute\t11:00:59\t11:01:00\tthen one every 6 s\tgranted\tmost in a minute")
	for _, x := range limiters {
		var granted []time.Time
		marks := ""
		for _, at := range arrivals() {
			d, err := x.l.Reserve(context.Background(), throttle.Claim{Now: at})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			mark := "·"
			if d.OK {
				mark, granted = "#", append(granted, at)
			}
			marks += mark
		}
		m := []rune(marks)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%d\n", x.name, string(m[:5]), string(m[5:10]), string(m[10:]), len(granted), maxInAMinute(granted))
	}
	w.Flush()
}

// maxInAMinute returns the number of grants in the fullest minute.
func maxInAMinute(granted []time.Time) (n int) {
	for i, from := range granted {
		in := 0
		for _, at := range granted[i:] {
			if at.Sub(from) < time.Minute {
				in++
			}
		}
		n = max(n, in)
	}
	return n
}
