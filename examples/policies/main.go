// Policies loads a file with every policy that the literature on rate limits describes, and
// shows decisions of each of them. Time is an argument, so days pass immediately.
//
// A server uses the same file unchanged:
//
//	m := &throttlehttp.Middleware{Limits: set.Limits}
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

//go:embed policies.yaml
var file []byte

// midnight is the time at which every scenario begins.
var midnight = time.Date(2026, time.November, 21, 0, 0, 0, 0, time.UTC)

func main() {
	for _, s := range scenarios {
		if err := s.run(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// run makes the requests of s with unused limits of the file, and prints the decisions.
func (s scenario) run(out io.Writer) error {
	set, err := load()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n", s.policy)
	for _, step := range s.steps {
		marks, last := "", throttle.Decision{}
		for range step.times {
			if last, err = request(set, s, step); err != nil {
				return err
			}
			marks += mark(last)
		}
		fmt.Fprintf(out, "  %-27s %s%s\n", step.describe(), compact(marks), retryIn(last))
	}
	return nil
}

// load returns the limits of the file. The program determines whether there is spare
// capacity: here there is until noon.
func load() (*rules.Set, error) {
	clk := clock.NewMock()
	clk.Set(midnight)
	return rules.Parse(file, rules.Config{Clock: clk, CanBorrow: map[string]func(throttle.Claim, throttle.Decision) bool{
		"others": func(c throttle.Claim, _ throttle.Decision) bool { return c.Now.Hour() < 12 },
	}})
}

// request makes one request of s. If only failures count, the units of a success are
// returned.
func request(set *rules.Set, s scenario, at step) (throttle.Decision, error) {
	ctx := context.Background()
	r := httptest.NewRequest(s.method, s.path, http.NoBody)
	r.Header.Set("X-User", "ann")
	r.Header.Set("X-Device", "phone")
	var t queue.Ticket
	if err := set.Limits(r, &t); err != nil {
		return throttle.Decision{}, err
	}
	if at.cost > 0 {
		t.Demands[0].Cost = at.cost
	}
	now := midnight.Add(at.at)
	d, err := t.Reserve(ctx, now)
	if err != nil || !d.OK {
		return d, err
	}
	for i := range t.Demands {
		granted, _ := t.Decision(i)
		d.OverLimit = d.OverLimit || granted.OverLimit
	}
	if at.succeeds {
		t.Report(ctx, throttle.Feedback{Now: now, State: throttle.Unused})
	} else {
		t.Report(ctx, throttle.Feedback{Now: now})
	}
	return d, nil
}
