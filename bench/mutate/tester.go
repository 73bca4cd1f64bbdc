package main

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/bench/internal/source"
)

// A scope selects the packages whose tests run.
type scope uint8

const (
	importers  scope = iota // the changed package and those that import it
	ownPackage              // the changed package
	ownTracker              // the packages of the quota tracker
)

// runs reports whether the tests of p run for a change of changed.
func (t *tester) runs(p, changed *pkg) bool {
	switch t.scope {
	case ownPackage:
		return p == changed
	case ownTracker:
		return source.IsTracker(t.packages.dirs[p.ImportPath])
	}
	return true
}

// A tester runs tests with one change at a time.
type tester struct {
	packages  *packages
	timeout   time.Duration
	scope     scope                // which packages run their tests
	dir       string               // of the changed file and the overlay
	baselines map[string]*baseline // by import path
}

func newTester(p *packages, timeout time.Duration, s scope) (*tester, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	return &tester{packages: p, timeout: timeout, scope: s, dir: dir, baselines: map[string]*baseline{}}, nil
}

func (t *tester) close() { _ = os.RemoveAll(t.dir) }

// try applies a change and returns whether a test detects it.
func (t *tester) try(ctx context.Context, c change) (r result, compiles bool, err error) {
	overlay, err := t.overlay(c)
	if err != nil {
		return r, false, err
	}
	testers, err := t.testersOf(ctx, c)
	if err != nil {
		return r, true, err
	}
	if len(testers) == 0 {
		_, err := t.goCommand(ctx, "build", "-overlay", overlay, c.pkg.ImportPath)
		return result{change: c}, err == nil, ctx.Err()
	}
	start := time.Now()
	r.change, r.Executed = c, true
	for _, p := range testers {
		if _, err := t.compile(ctx, p, "-overlay", overlay); err != nil {
			return r, false, ctx.Err() // the change, or a test that requires it unchanged
		}
		if failed, hung := t.fails(ctx, p, t.baselines[p.ImportPath].testsOf(c)); failed {
			r.Noticed, r.Hung = p.ImportPath, hung
			break
		}
	}
	r.Seconds = time.Since(start).Round(100 * time.Millisecond).Seconds()
	return r, true, ctx.Err()
}

// testersOf returns the packages with tests that execute the statements at a change: the
// changed package, then the others, the fastest first.
func (t *tester) testersOf(ctx context.Context, c change) ([]*pkg, error) {
	var all []*pkg
	took := map[*pkg]time.Duration{}
	for _, p := range t.packages.testersOf(c.pkg) {
		if !t.runs(p, c.pkg) {
			continue
		}
		b, err := t.baseline(ctx, p)
		if err != nil {
			return nil, err
		}
		if tests := b.testsOf(c); len(tests) > 0 {
			all, took[p] = append(all, p), total(tests)
		}
	}
	took[c.pkg] = -1
	slices.SortStableFunc(all, func(p, q *pkg) int { return cmp.Compare(took[p], took[q]) })
	return all, nil
}

// fails reports whether some of the tests fail, and fail again, so that a test that fails by
// chance does not count. The fast tests run before the others.
func (t *tester) fails(ctx context.Context, p *pkg, tests []testRun) (failed, hung bool) {
	fast := 0
	for fast < len(tests) && tests[fast].took <= slowTest {
		fast++
	}
	for _, some := range [][]testRun{tests[:fast], tests[fast:]} {
		if len(some) == 0 {
			continue
		}
		timeout := min(30*time.Second+10*total(some), t.timeout)
		run := func() (failed, hung bool) {
			out, err := t.runTests(ctx, p, timeout, "-test.run", anyOf(some...))
			return err != nil, strings.Contains(out, "panic: test timed out")
		}
		if failed, hung = run(); failed && !hung {
			failed, hung = run()
		}
		if failed {
			return true, hung
		}
	}
	return false, false
}

// overlay writes the changed file, and returns the overlay file that replaces the original
// by it.
func (t *tester) overlay(c change) (string, error) {
	text, err := os.ReadFile(c.path)
	if err != nil {
		return "", err
	}
	return source.Overlay(t.dir, c.path, c.apply(text))
}

// binary is the path of the test program that compile has made.
func (t *tester) binary() string { return filepath.Join(t.dir, "tests") }

// compile compiles the tests of p.
func (t *tester) compile(ctx context.Context, p *pkg, flags ...string) (string, error) {
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", t.binary()}, flags...)
	return t.goCommand(ctx, append(args, p.ImportPath)...)
}

// runTests runs the test program of p, which must have been compiled.
func (t *tester) runTests(ctx context.Context, p *pkg, timeout time.Duration, flags ...string) (string, error) {
	args := append([]string{"-test.failfast", "-test.paniconexit0", "-test.timeout", timeout.String()}, flags...)
	return t.command(ctx, p.Dir, t.binary(), args...)
}

func (t *tester) goCommand(ctx context.Context, args ...string) (string, error) {
	return t.command(ctx, t.packages.root, "go", args...)
}

// command runs a program in a directory. A changed loop may allocate all memory, so the
// memory of the program is limited if the shell supports it.
func (t *tester) command(ctx context.Context, dir, program string, args ...string) (string, error) {
	const limit = `ulimit -v 12000000 2>/dev/null; exec "$0" "$@"`
	ctx, cancel := context.WithTimeout(ctx, t.timeout+5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", limit, program}, args...)...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	return string(out), err
}
