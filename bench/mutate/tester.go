package main

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A tester runs tests with one change at a time.
type tester struct {
	packages  *packages
	timeout   time.Duration
	own       bool                 // run only the tests of the changed package
	dir       string               // of the changed file and the overlay
	baselines map[string]*baseline // by import path
}

func newTester(p *packages, timeout time.Duration, own bool) (*tester, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	return &tester{packages: p, timeout: timeout, own: own, dir: dir, baselines: map[string]*baseline{}}, nil
}

func (t *tester) close() { _ = os.RemoveAll(t.dir) }

// try applies a change and returns whether a test detects it.
func (t *tester) try(ctx context.Context, c change) (r result, compiles bool, err error) {
	overlay, err := t.overlay(c)
	if err != nil {
		return r, false, err
	}
	if _, err := t.goCommand(ctx, "build", "-overlay", overlay, c.pkg.ImportPath); err != nil {
		return r, false, ctx.Err()
	}
	testers, err := t.testersOf(ctx, c)
	if err != nil {
		return r, true, err
	}
	start := time.Now()
	r.change, r.Executed = c, len(testers) > 0
	for _, p := range testers {
		out, err := t.testInStages(ctx, p, "-overlay", overlay)
		if ctx.Err() != nil {
			return r, true, ctx.Err()
		}
		if err != nil && strings.Contains(out, "[build failed]") {
			return r, false, nil // such as a constant that a test requires unchanged
		}
		if err != nil {
			r.Noticed, r.Hung = p.ImportPath, strings.Contains(out, "panic: test timed out")
			break
		}
	}
	r.Seconds = time.Since(start).Round(100 * time.Millisecond).Seconds()
	return r, true, nil
}

// testersOf returns the packages whose tests execute the statements at a change: the changed
// package, then the others, the fastest first.
func (t *tester) testersOf(ctx context.Context, c change) ([]*pkg, error) {
	var all []*pkg
	for _, p := range t.packages.testersOf(c.pkg) {
		if t.own && p != c.pkg {
			continue
		}
		b, err := t.baseline(ctx, p)
		if err != nil {
			return nil, err
		}
		if b.executes(c) {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(p, q *pkg) int {
		return cmp.Compare(t.order(p, c), t.order(q, c))
	})
	return all, nil
}

// order returns the time that the tests of p take, or less than any if a change is in p.
func (t *tester) order(p *pkg, c change) time.Duration {
	if p == c.pkg {
		return -1
	}
	return t.baselines[p.ImportPath].took
}

// overlay writes the changed file, and returns the overlay file that replaces the original
// by it.
func (t *tester) overlay(c change) (string, error) {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(t.dir, "changed.go"), filepath.Join(t.dir, "overlay.json")
	if err := os.WriteFile(changed, c.apply(text), 0o600); err != nil {
		return "", err
	}
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {c.path: changed}})
	if err != nil {
		return "", err
	}
	return overlay, os.WriteFile(overlay, replace, 0o600)
}

// testInStages runs the fast tests of p, and the slow ones if these pass.
func (t *tester) testInStages(ctx context.Context, p *pkg, flags ...string) (string, error) {
	b := t.baselines[p.ImportPath]
	timeout := b.timeout(t.timeout)
	if len(b.slow) == 0 {
		return t.test(ctx, p, timeout, flags...)
	}
	slow := "^(" + strings.Join(b.slow, "|") + ")$"
	if out, err := t.test(ctx, p, timeout, append(flags, "-skip", slow)...); err != nil {
		return out, err
	}
	return t.test(ctx, p, timeout, append(flags, "-run", slow)...)
}

// test runs the tests of p without the checks of go vet.
func (t *tester) test(ctx context.Context, p *pkg, timeout time.Duration, flags ...string) (string, error) {
	args := append([]string{"test", "-vet=off", "-failfast", "-timeout", timeout.String()}, flags...)
	return t.goCommand(ctx, append(args, p.ImportPath)...)
}

// goCommand runs the go command in the root of the module. A changed loop may allocate all
// memory, so the memory of the command is limited if the shell supports it.
func (t *tester) goCommand(ctx context.Context, args ...string) (string, error) {
	const limit = `ulimit -v 12000000 2>/dev/null; exec go "$@"`
	ctx, cancel := context.WithTimeout(ctx, t.timeout+5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", limit, "go"}, args...)...)
	cmd.Dir = t.packages.root
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	return string(out), err
}
