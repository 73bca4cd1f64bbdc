package limitertest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
)

var update = flag.Bool("update", false, "write the files with decisions")

// A Trace is the text of the decisions of several limiters on random operations. A test compares it
// with a file, so that a change of decisions is seen in a diff.
type Trace struct{ text strings.Builder }

// Compare fails t if the text differs from the file at a path. With the flag -update it writes
// the file.
func (tr *Trace) Compare(t *testing.T, path string) {
	got := tr.text.String()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) == got {
		return
	}
	wants, heading := strings.Split(string(want), "\n"), ""
	for i, line := range strings.Split(got, "\n") {
		if strings.HasPrefix(line, "#") {
			heading = line
		}
		if i >= len(wants) || line != wants[i] {
			t.Fatalf("%s:%d, %s: the decisions differ:\ngot  %s\nwant %s", path, i+1, heading, line, strings.Join(wants[min(i, len(wants)):min(i+1, len(wants))], ""))
		}
	}
	t.Fatalf("%s has more decisions", path)
}

// A manualClock is a clock that does not advance by itself.
type manualClock struct{ now time.Time }

func (c *manualClock) Now() time.Time                       { return c.now }
func (c *manualClock) After(time.Duration) <-chan time.Time { return nil }

// A claimed is a claim that was granted.
type claimed struct {
	throttle.Claim
	d throttle.Decision
}

// Add adds a line for each of 120 random operations on the limiter that newLimiter returns: claims
// for one of the keys, cancellations, costs that are corrected, and changes of the limit. The
// operations depend on the seed only. Limits should be of about ten units per minute.
func (tr *Trace) Add(t *testing.T, heading string, newLimiter func(throttle.Clock) throttle.Limiter, seed uint64, keys ...string) {
	to := &tr.text
	fmt.Fprintf(to, "# %s\n", heading)
	clk := &manualClock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	l := throttle.WithClock(newLimiter(clk), clk)
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
			c := throttle.Claim{Key: keys[rng.IntN(len(keys))], Cost: []int64{0, 1, 1, 2, 3, 5, 8, 30}[rng.IntN(8)], Now: now, DryRun: rng.IntN(8) == 0}
			if rng.IntN(8) == 0 {
				c.Waits, c.Waited = true, upTo(10*time.Second)
			}
			ahead := time.Duration(-1)
			var d throttle.Decision
			var err error
			if l.Traits().BooksAhead && rng.IntN(2) == 0 {
				ahead = upTo(40 * time.Second)
				d, err = throttle.ReserveAhead(t.Context(), l, c, ahead)
			} else {
				d, err = l.Reserve(t.Context(), c)
			}
			if err != nil {
				t.Fatal(err)
			}
			if d.OK && !c.DryRun {
				granted = append(granted, claimed{c, d})
			}
			fmt.Fprintf(to, "reserve %d%s%s: %s\n", c.Cost, forKey(c.Key), options(c, ahead), outcome(d, clk.now))
		case op < 16:
			i := rng.IntN(len(granted))
			c := granted[i]
			granted = append(granted[:i], granted[i+1:]...)
			l.Report(t.Context(), c.Claim, c.d, throttle.Feedback{Now: now, State: throttle.Unused})
			fmt.Fprintf(to, "cancel %d%s of %v\n", c.Cost, forKey(c.Key), c.d.At.Sub(start))
		case op < 19:
			c := granted[rng.IntN(len(granted))]
			f := throttle.Feedback{Now: now, Cost: rng.Int64N(6)}
			if rng.IntN(4) == 0 {
				f.State = throttle.Ongoing
			}
			l.Report(t.Context(), c.Claim, c.d, f)
			fmt.Fprintf(to, "cost %d of %d of %v", f.Cost, c.Cost, c.d.At.Sub(start))
			if f.State == throttle.Ongoing {
				to.WriteString(", partial")
			}
			to.WriteByte('\n')
		default:
			limit := throttle.Limit{Count: 5 + rng.Int64N(10), Per: []time.Duration{time.Minute, 45 * time.Second}[rng.IntN(2)]}
			if s, ok := l.(throttle.Adjustable); ok && l.Traits().EndsAtResponse { // a limit on concurrency has no Per
				if err := s.SetLimit(limit); err != nil {
					t.Fatal(err)
				}
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

func forKey(key string) string {
	if key == "" {
		return ""
	}
	return " for " + key
}
