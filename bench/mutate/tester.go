package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A tester runs tests with one change at a time.
type tester struct {
	packages *packages
	timeout  time.Duration
	dir      string          // of the changed file and the overlay
	passes   map[string]bool // packages whose tests pass without a change
}

func newTester(p *packages, timeout time.Duration) (*tester, error) {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return nil, err
	}
	return &tester{packages: p, timeout: timeout, dir: dir, passes: map[string]bool{}}, nil
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
	start := time.Now()
	r.change = c
	for _, p := range t.packages.testersOf(c.pkg) {
		if err := t.passesUnchanged(ctx, p); err != nil {
			return r, true, err
		}
		out, err := t.test(ctx, p, "-overlay", overlay)
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

// passesUnchanged returns an error if the tests of p fail without a change, because they
// then cannot detect one.
func (t *tester) passesUnchanged(ctx context.Context, p *pkg) error {
	if t.passes[p.ImportPath] {
		return nil
	}
	if out, err := t.test(ctx, p); err != nil {
		return fmt.Errorf("the tests of %s fail without a change: %w\n%s", p.ImportPath, err, out)
	}
	t.passes[p.ImportPath] = true
	return nil
}

// test runs the tests of p without the checks of go vet.
func (t *tester) test(ctx context.Context, p *pkg, flags ...string) (string, error) {
	args := append([]string{"test", "-vet=off", "-failfast", "-timeout", t.timeout.String()}, flags...)
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
