package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/bench/internal/source"
)

// The outcomes of a run.
const (
	meetsGoals  = "adds no missed goal"
	missesGoals = "ADDS MISSED GOALS"
	fails       = "does not build"
)

// A result is a run with a change.
type result struct {
	change
	Outcome string   `json:"outcome"`
	Seconds float64  `json:"seconds"`
	Missed  []string `json:"missed,omitempty"` // the goals that are missed only with the change
	Output  string   `json:"output,omitempty"` // the last lines of a run that misses the goals
}

// A runner runs the command with a change.
type runner struct {
	command string
	timeout time.Duration
	dir     string         // of the overlay
	known   map[string]int // goals that are missed without a change, see misses
}

// all runs the command without a change, and with each of changes. What is missed without a change, in either of two runs, is
// not counted for a change.
func (r runner) all(ctx context.Context, changes []change, done func(result)) (results []result, err error) {
	r.known = map[string]int{}
	for range 2 {
		out, err := r.run(ctx, r.command, "")
		if err == nil {
			break
		}
		found := misses(out)
		if len(found) == 0 || !ended(err) {
			return nil, fmt.Errorf("without a change %q: %w\n%s", r.command, err, last(out))
		}
		for goal, n := range found {
			r.known[goal] = max(r.known[goal], n)
		}
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

// with runs the command with a change. A run that misses more goals than without it is repeated, so that what is missed by
// chance does not count.
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
		first, _ := r.added(ctx, overlay)
		if x.Outcome = meetsGoals; len(first) > 0 {
			second, out := r.added(ctx, overlay)
			x.Missed = slices.DeleteFunc(second, func(goal string) bool { return !slices.Contains(first, goal) })
			if len(x.Missed) > 0 {
				x.Outcome, x.Output = missesGoals, last(out)
			}
		}
	}
	x.Seconds = time.Since(start).Round(100 * time.Millisecond).Seconds()
	return x, ctx.Err()
}

// added runs the command with an overlay. It returns the goals that are missed more often than without a change, and the
// output.
func (r runner) added(ctx context.Context, overlay string) (goals []string, out string) {
	out, err := r.run(ctx, r.command, overlay)
	if err == nil {
		return nil, out
	}
	found := misses(out)
	for goal, n := range found {
		if n > r.known[goal] {
			goals = append(goals, goal)
		}
	}
	if len(found) == 0 || !ended(err) {
		goals = append(goals, "the command fails")
	}
	slices.Sort(goals)
	return goals, out
}

// ended reports whether err is that of a command that was not killed, for example because it took too long.
func ended(err error) bool {
	var e *exec.ExitError
	return errors.As(err, &e) && e.Exited()
}

var (
	failure = regexp.MustCompile(`^(--- FAIL: \S+|panic: |fatal error: )`)
	columns = regexp.MustCompile(` \||  +`)  // after the name of a row
	figure  = regexp.MustCompile(`\d[\w.]*`) // differs from run to run
)

// misses returns the goals that the output of a program of bench or of go test reports as missed, and how many times. A
// goal is the name of its row and what follows the word "missed", without figures. Rows without a name count together.
func misses(out string) map[string]int {
	found := map[string]int{}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if f := failure.FindString(line); f != "" {
			found[f]++
		} else if row, goals, ok := strings.Cut(line, "missed"); ok {
			name := strings.Trim(columns.Split(row, 2)[0], ": ")
			for goal := range strings.SplitSeq(strings.TrimPrefix(goals, ": "), ", ") {
				found[name+": "+figure.ReplaceAllString(goal, "#")]++
			}
		}
	}
	return found
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
