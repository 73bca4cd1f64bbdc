// Policies loads a file with every policy that texts on rate limits use, and shows
// each of them deciding. Time is data here, so that days pass at once.
//
// On a server the same file works as it is:
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

// midnight is when every scene begins.
var midnight = time.Date(2026, time.November, 21, 0, 0, 0, 0, time.UTC)

func main() {
	for _, s := range scenarios {
		if err := s.run(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// run asks the limits of the file, unused, what s asks, and prints what they say.
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

// load returns the limits of the file. Whether there is room to spare is for the
// program to say: here there always is, until noon.
func load() (*rules.Set, error) {
	clk := clock.NewMock()
	clk.Set(midnight)
	return rules.Parse(file, rules.Config{Clock: clk, CanBorrow: map[string]func(throttle.Claim, throttle.Decision) bool{
		"others": func(c throttle.Claim, _ throttle.Decision) bool { return c.Now.Hour() < 12 },
	}})
}

// request is one request of s. Where only failures count, what succeeded is given back.
func request(set *rules.Set, s scenario, at step) (throttle.Decision, error) {
	ctx := context.Background()
	r := httptest.NewRequest(s.method, s.path, http.NoBody)
	r.Header.Set("X-User", "ann")
	r.Header.Set("X-Device", "phone")
	var t queue.Ticket
	set.Limits(r, &t)
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
		t.Cancel(ctx, now)
	} else {
		t.Observe(ctx, throttle.Feedback{Now: now})
	}
	return d, nil
}
