package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"github.com/heed-go/heed/bench/internal/source"
)

// The outcomes of a run.
const (
	meetsGoals  = "meets the goals"
	missesGoals = "MISSES THE GOALS"
	fails       = "does not build"
)

// A result is a run with a change.
type result struct {
	change
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds"`
	Output  string  `json:"output,omitempty"` // the last lines of a run that misses the goals
}

// A runner runs the command with a change.
type runner struct {
	command string
	timeout time.Duration
	dir     string // of the overlay
}

// all runs the command without a change, which must meet the goals, and with each of changes.
func (r runner) all(ctx context.Context, changes []change, done func(result)) (results []result, err error) {
	if out, err := r.run(ctx, r.command, ""); err != nil {
		return nil, fmt.Errorf("without a change %q: %w\n%s", r.command, err, last(out))
	}
	for _, c := range changes {
		x, err := r.with(ctx, c)
		if err != nil {
			return results, err
		}
		done(x)
		results = append(results, x)
	}
	return results, nil
}

// with runs the command with a change. A run that misses the goals is repeated, so that one that
// does by chance does not count.
func (r runner) with(ctx context.Context, c change) (result, error) {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return result{}, err
	}
	overlay, err := source.Overlay(r.dir, c.path, c.apply(text))
	if err != nil {
		return result{}, err
	}
	start, x := time.Now(), result{change: c, Outcome: fails}
	build := "cd " + quote(strings.TrimSuffix(c.path, path.Base(c.File))) + " && go build ."
	if _, err := r.run(ctx, build, overlay); err == nil {
		out, err := r.run(ctx, r.command, overlay)
		if err != nil {
			out, err = r.run(ctx, r.command, overlay)
		}
		if x.Outcome = meetsGoals; err != nil {
			x.Outcome, x.Output = missesGoals, last(out)
		}
	}
	x.Seconds = time.Since(start).Round(100 * time.Millisecond).Seconds()
	return x, ctx.Err()
}

// run runs a command of the shell with an overlay; "" means none.
func (r runner) run(ctx context.Context, command, overlay string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	cmd.WaitDelay = 10 * time.Second
	killGroup(cmd)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// last returns the last lines of a text, indented.
func last(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return "    " + strings.Join(lines[max(len(lines)-6, 0):], "\n    ")
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
