package throttletest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
)

// fakeTB is a testing.TB that fails without failing the test.
type fakeTB struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *fakeTB) Helper() {}

func (r *fakeTB) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *fakeTB) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failuresByRequirement returns the failures of a limiter by requirement.
func failuresByRequirement(t *testing.T, new func(throttle.Clock) throttle.Limiter, spec Spec) map[string]string {
	spec.Histories = 300
	failed := map[string]string{}
	for _, p := range requirements {
		r := &fakeTB{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if v := recover(); v != nil {
					r.Errorf("panic: %v", v)
				}
			}()
			run(r, p, new, spec)
		}()
		<-done
		if len(r.failures) > 0 {
			failed[p.name] = r.failures[0]
		}
	}
	return failed
}

var five = throttle.Limit{Count: 10, Per: time.Second, Burst: 5}

// Each broken limiter fails the requirement that it violates.
func TestTestLimiter_reportsBrokenLimiters(t *testing.T) {
	if failed := failuresByRequirement(t, newBucket(""), Spec{Limit: five}); len(failed) != 0 {
		t.Fatalf("the correct bucket fails: %v", failed)
	}
	for fault, requirement := range map[string]string{
		"gives back the whole cost":           "random histories obey the bound",
		"gives nothing back":                  "Unused returns the units",
		"gives back what it rejected":         "the report of a rejection does nothing",
		"gives nothing back when ctx is done": "Unused works when ctx is done",
		"a rejection takes":                   "a rejection takes nothing",
		"a rejection advances the clock":      "a rejection takes nothing",
		"a dry run takes":                     "a dry run takes nothing",
		"a dry run advances the clock":        "a dry run takes nothing",
		"says half the wait":                  "an equal claim after Wait is granted",
		"rounds the wait down":                "an equal claim after Wait is granted",
		"does not know the wait":              "an equal claim after Wait is granted",
		"says Forever too soon":               "an equal claim after Wait is granted",
		"says a wait that does not help":      "a cost over the limit waits Forever",
		"overflows for large costs":           "a cost over the limit waits Forever",
		"takes negative costs":                "a negative cost is ErrCost",
		"takes no cost for nothing":           "no cost means one unit",
		"credits time twice":                  "an older reading counts as the newest",
		"charges for older readings":          "an older reading counts as the newest",
		"takes Unix 0 for never":              "the clock may stop, jump and step back",
		"has no top":                          "the clock may stop, jump and step back",
		"does not look at Now":                "At is the reading of the clock",
		"gives back what was used":            "random histories obey the bound",
		"ends a claim at More":                "Ongoing does not end a claim",
		"loses updates":                       "concurrent claims obey the bound",
		"shows too much":                      "Remaining is what is granted",
		"refills too fast":                    "random histories obey the bound",
		"starts too full":                     "the clock may stop, jump and step back",
		"rejects with an error":               "an equal claim after Wait is granted",
		"books ahead unasked":                 "an equal claim after Wait is granted",
		"overflows for large feedback":        "extreme feedback keeps the bound",
		"says Fresh when used":                "Fresh means as a new limiter",
		"says BooksAhead":                     "BooksAhead means that Ahead is obeyed",
		"says NonBlocking, and uses ctx":      "NonBlocking means that ctx is not used",
		"names the wrong part":                "Part is the one of Parts that rejects",
	} {
		failed := failuresByRequirement(t, newBucket(fault), Spec{Limit: five})
		if failed[requirement] == "" {
			t.Errorf("a limiter that %q meets the requirement %q; failed: %v", fault, requirement, failed)
		}
		t.Logf("%s:\n\t%s", fault, failed[requirement])
	}
}

// bucket is a token bucket of five units with options for every fault.
type bucket struct {
	fault string
	clk   throttle.Clock
	mu    sync.Mutex
	level int64 // in nanoseconds of flow
	last  time.Time
	used  bool
}

const interval = int64(100 * time.Millisecond)

func newBucket(fault string) func(throttle.Clock) throttle.Limiter {
	return func(clk throttle.Clock) throttle.Limiter {
		b := &bucket{fault: fault, clk: clk}
		b.level = b.burst()
		return b
	}
}

func (b *bucket) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	switch {
	case err != nil && b.fault == "takes negative costs":
		n = c.Cost
	case err != nil:
		return throttle.Decision{}, err
	case c.Cost == 0 && b.fault == "takes no cost for nothing":
		n = 0
	}
	if b.fault == "says NonBlocking, and uses ctx" {
		select {
		case <-ctx.Done():
		default: // where a store would be waited for
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	given := b.reading(c.Now)
	now, level := b.elapsedLevel(given)
	d := throttle.Decision{Policy: "five", At: now, Limit: 5}
	if b.fault == "does not look at Now" {
		d.At = b.clk.Now()
	}
	b.decide(&d, n, level)
	if d.OK && !c.DryRun || c.DryRun && b.fault == "a dry run takes" || !d.OK && b.fault == "a rejection takes" && n < 5 {
		if b.fault == "loses updates" {
			b.mu.Unlock()
			runtime.Gosched()
			b.mu.Lock()
		}
		level -= n * interval
		b.level, b.last, b.used = level, now, true
	} else if c.DryRun && b.fault == "a dry run advances the clock" || !d.OK && b.fault == "a rejection advances the clock" {
		b.level, b.last, b.used = level, now, true
	}
	b.describe(&d, level)
	d.Fresh = c.DryRun && (d.ResetAfter == 0 || b.fault == "says Fresh when used")
	if !d.OK && b.fault == "rejects with an error" {
		return d, errors.New("too many requests")
	}
	return d, nil
}

// decide sets OK and Wait.
func (b *bucket) decide(d *throttle.Decision, n, level int64) {
	short := n*interval - level
	if n > 5 && b.fault != "overflows for large costs" {
		short = interval
	}
	d.OK = short <= 0
	if d.OK {
		return
	}
	d.Wait = time.Duration(short)
	switch {
	case b.fault == "books ahead unasked" && n == 1:
		d.OK = true
	case n > 5 && b.fault != "says a wait that does not help":
		d.Wait = throttle.Forever
	case b.fault == "says Forever too soon" && n == 5:
		d.Wait = throttle.Forever
	case b.fault == "says half the wait":
		d.Wait /= 2
	case b.fault == "rounds the wait down":
		d.Wait = d.Wait / time.Millisecond * time.Millisecond
	case b.fault == "does not know the wait":
		d.Wait = 0
	}
}

func (b *bucket) describe(d *throttle.Decision, level int64) {
	d.Remaining = min(max(level/interval, 0), 5)
	if b.fault == "shows too much" && d.Remaining > 0 && d.Remaining < 5 {
		d.Remaining++
	}
	d.ResetAfter = time.Duration(max(5*interval-level, 0))
}

func (b *bucket) reading(now time.Time) time.Time {
	if now.IsZero() {
		return b.clk.Now()
	}
	return now
}

// elapsedLevel returns the reading that given counts as, and the level then.
func (b *bucket) elapsedLevel(given time.Time) (time.Time, int64) {
	if !b.used || b.fault == "takes Unix 0 for never" && b.last.UnixNano() == 0 {
		return given, b.burst()
	}
	elapsed := given.Sub(b.last)
	switch {
	case elapsed >= 0:
	case b.fault == "credits time twice":
		elapsed = 0 // and last goes back with given
	case b.fault == "charges for older readings":
	default:
		given, elapsed = b.last, 0
	}
	if b.fault == "refills too fast" {
		elapsed += elapsed / 50
	}
	level := b.level + int64(min(elapsed, time.Minute))
	if b.fault == "has no top" {
		return given, level
	}
	return given, min(level, b.burst())
}

func (b *bucket) burst() int64 {
	if b.fault == "starts too full" {
		return 6 * interval
	}
	return 5 * interval
}

// checkRefund returns n units of the claim that d granted.
func (b *bucket) giveBack(n int64, now time.Time, d throttle.Decision) {
	now, level := b.elapsedLevel(now)
	left := n*interval - int64(max(now.Sub(d.At), 0))
	if b.fault == "gives back the whole cost" || b.fault == "gives back what it rejected" {
		left = n * interval
	}
	// As of now, but a claim may still be made at any reading since the last grant.
	_ = level
	b.level = min(b.level+max(left, 0), b.burst())
}

func (b *bucket) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		if !d.OK && b.fault != "gives back what it rejected" || b.fault == "gives nothing back" || b.fault == "gives nothing back when ctx is done" && ctx.Err() != nil {
			return
		}
		n, _ := c.Units()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.giveBack(n, b.reading(c.Now), d)
		return
	}
	n, _ := c.Units()
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.fault == "overflows for large feedback" && f.Cost > 0:
		b.level -= f.Cost * interval
	case b.fault == "gives back what was used" && f.State != throttle.Ongoing, b.fault == "ends a claim at More" && f.State == throttle.Ongoing:
		b.giveBack(n, b.reading(f.Now), d)
	}
}

// Traits implements throttle.Limiter.
func (b *bucket) Traits() throttle.Traits {
	t := throttle.Traits{EndsAtResponse: true, BooksAhead: b.fault == "says BooksAhead", NonBlocking: b.fault == "says NonBlocking, and uses ctx"}
	if b.fault == "names the wrong part" {
		t.Parts = []throttle.Limiter{throttle.AllowAll}
	}
	return t
}
