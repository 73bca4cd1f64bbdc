package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slowTest is the duration above which a test runs only if the faster tests of its package
// do not detect the change.
const slowTest = 300 * time.Millisecond

// A baseline holds what the tests of one package do without a change.
type baseline struct {
	tests  []testRun          // the fastest first
	blocks map[string][]block // by path from the root of the module: all statements; nil: not known
}

// A testRun is one test that was run alone.
type testRun struct {
	name     string
	took     time.Duration
	executed map[string][]block // nil: not known
}

// A block is a range of statements of a coverage profile.
type block struct{ from, to position }

type position struct{ line, column int }

func (p position) before(other position) bool {
	return p.line < other.line || p.line == other.line && p.column < other.column
}

// contain reports whether a change lies in one of the blocks of its file.
func contain(blocks map[string][]block, c change) bool {
	at := position{c.Line, c.column}
	return slices.ContainsFunc(blocks[c.File], func(b block) bool { return !at.before(b.from) && at.before(b.to) })
}

// testsOf returns the tests that execute the statements at a change. It returns all tests
// where coverage is not measured, such as in declarations of constants.
func (b *baseline) testsOf(c change) (tests []testRun) {
	for _, one := range b.tests {
		if !contain(b.blocks, c) || one.executed == nil || contain(one.executed, c) {
			tests = append(tests, one)
		}
	}
	return tests
}

func total(tests []testRun) (sum time.Duration) {
	for _, one := range tests {
		sum += one.took
	}
	return sum
}

// baseline runs the tests of p without a change, which must pass: otherwise they cannot
// detect one. It then runs each of them alone, to learn which statements it executes.
func (t *tester) baseline(ctx context.Context, p *pkg) (*baseline, error) {
	if b := t.baselines[p.ImportPath]; b != nil {
		return b, nil
	}
	if out, err := t.compile(ctx, p); err != nil {
		return nil, fmt.Errorf("the tests of %s do not compile: %w\n%s", p.ImportPath, err, out)
	}
	if out, err := t.passes(ctx, p); err != nil {
		return nil, fmt.Errorf("the tests of %s fail without a change: %w\n%s", p.ImportPath, err, out)
	}
	if out, err := t.compile(ctx, p, "-coverpkg=./..."); err != nil {
		return nil, fmt.Errorf("the tests of %s do not compile with coverage: %w\n%s", p.ImportPath, err, out)
	}
	names, err := t.runTests(ctx, p, t.timeout, "-test.list", "^(Test|Example|Fuzz)")
	if err != nil {
		return nil, fmt.Errorf("the tests of %s cannot be listed: %w\n%s", p.ImportPath, err, names)
	}
	b := &baseline{blocks: map[string][]block{}}
	for name := range strings.FieldsSeq(names) {
		b.tests = append(b.tests, t.measure(ctx, p, name, b.blocks))
	}
	slices.SortStableFunc(b.tests, func(x, y testRun) int { return int(x.took - y.took) })
	t.baselines[p.ImportPath] = b
	return b, ctx.Err()
}

// passes runs the tests of p up to three times, until they pass.
func (t *tester) passes(ctx context.Context, p *pkg) (out string, err error) {
	for range 3 {
		if out, err = t.runTests(ctx, p, t.timeout); err == nil {
			break
		}
	}
	return out, err
}

// measure runs one test with coverage. It adds the blocks of all statements to blocks.
func (t *tester) measure(ctx context.Context, p *pkg, name string, blocks map[string][]block) testRun {
	profile := filepath.Join(t.dir, "coverage")
	_ = os.Remove(profile)
	run, start := testRun{name: name}, time.Now()
	_, err := t.runTests(ctx, p, t.timeout, "-test.run", anyOf(run), "-test.coverprofile", profile)
	run.took = time.Since(start)
	if err != nil {
		return run // such as a test that counts allocations
	}
	text, err := os.ReadFile(profile)
	if err != nil {
		return run
	}
	run.executed = map[string][]block{}
	first := len(blocks) == 0
	for line := range strings.Lines(string(text)) {
		executed := !strings.HasSuffix(line, " 0\n")
		if !executed && !first {
			continue
		}
		file, b, err := parseBlock(strings.TrimSpace(line))
		if err != nil {
			continue // the mode
		}
		file = path.Join(t.packages.dirs[path.Dir(file)], path.Base(file))
		if first {
			blocks[file] = append(blocks[file], b)
		}
		if executed {
			run.executed[file] = append(run.executed[file], b)
		}
	}
	return run
}

// parseBlock parses a line of a coverage profile, file:line.column,line.column statements count.
func parseBlock(line string) (file string, b block, err error) {
	file, rest, found := strings.Cut(line, ".go:")
	n := strings.FieldsFunc(rest, func(r rune) bool { return r == '.' || r == ',' || r == ' ' })
	if !found || len(n) != 6 {
		return "", b, strconv.ErrSyntax
	}
	for i, to := range []*int{&b.from.line, &b.from.column, &b.to.line, &b.to.column} {
		if *to, err = strconv.Atoi(n[i]); err != nil {
			return "", b, err
		}
	}
	return file + ".go", b, nil
}

// anyOf returns the regular expression that matches the names of tests.
func anyOf(tests ...testRun) string {
	names := make([]string, len(tests))
	for i, one := range tests {
		names[i] = one.name
	}
	return "^(" + strings.Join(names, "|") + ")$"
}
