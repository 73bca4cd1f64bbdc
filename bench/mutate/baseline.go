package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slowTest is the duration above which a test runs only if the faster tests of its package
// do not detect the change.
const slowTest = 300 * time.Millisecond

// A baseline is a run of the tests of one package without a change.
type baseline struct {
	took     time.Duration      // of all tests, without compilation
	slow     []string           // tests that take longer than slowTest
	executed map[string][]block // by path from the root of the module; nil: not known
}

// A block is a range of statements of a coverage profile.
type block struct {
	from, to position
	count    int
}

type position struct{ line, column int }

func (p position) before(other position) bool {
	return p.line < other.line || p.line == other.line && p.column < other.column
}

// executes reports whether the tests execute the statements at a change. It is true where
// coverage is not measured, such as in declarations of constants.
func (b *baseline) executes(c change) bool {
	at, measured := position{c.Line, c.column}, false
	for _, one := range b.executed[c.File] {
		if at.before(one.from) || !at.before(one.to) {
			continue
		}
		if measured = true; one.count > 0 {
			return true
		}
	}
	return !measured
}

// timeout returns the time after which tests with a change count as failed: much longer than
// without a change, and at most limit.
func (b *baseline) timeout(limit time.Duration) time.Duration {
	return min(30*time.Second+10*b.took, limit)
}

// baseline runs the tests of p without a change, which must pass: otherwise they cannot
// detect one.
func (t *tester) baseline(ctx context.Context, p *pkg) (*baseline, error) {
	if b := t.baselines[p.ImportPath]; b != nil {
		return b, nil
	}
	profile := filepath.Join(t.dir, "coverage")
	b := &baseline{executed: map[string][]block{}}
	out, err := t.test(ctx, p, t.timeout, "-json", "-count=1", "-coverpkg=./...", "-coverprofile="+profile)
	if err == nil {
		err = b.readProfile(profile, t.packages)
	}
	if err != nil { // such as a test that counts allocations
		b.executed = nil
		if out, err = t.test(ctx, p, t.timeout, "-json", "-count=1"); err != nil {
			return nil, fmt.Errorf("the tests of %s fail without a change: %w\n%s", p.ImportPath, err, out)
		}
	}
	b.readTimes(out)
	t.baselines[p.ImportPath] = b
	return b, nil
}

// readTimes reads the durations of tests from the output of go test -json.
func (b *baseline) readTimes(out string) {
	for line := range strings.Lines(out) {
		var event struct {
			Action, Test string
			Elapsed      float64
		}
		if json.Unmarshal([]byte(line), &event) != nil || event.Action != "pass" {
			continue
		}
		switch took := time.Duration(event.Elapsed * float64(time.Second)); {
		case event.Test == "":
			b.took = took
		case took > slowTest && !strings.Contains(event.Test, "/"):
			b.slow = append(b.slow, event.Test)
		}
	}
	slices.Sort(b.slow)
}

// profileLine matches "file:line.column,line.column statements count".
var profileLine = regexp.MustCompile(`^(.+):(\d+)\.(\d+),(\d+)\.(\d+) \d+ (\d+)$`)

// readProfile reads a coverage profile. A block may occur several times.
func (b *baseline) readProfile(file string, p *packages) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	dirs := map[string]string{}
	for _, one := range p.all {
		dir, err := filepath.Rel(p.root, one.Dir)
		if err != nil {
			return err
		}
		dirs[one.ImportPath] = filepath.ToSlash(dir)
	}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := profileLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue // the mode
		}
		var n [5]int
		for i, s := range m[2:] {
			if n[i], err = strconv.Atoi(s); err != nil {
				return err
			}
		}
		name := path.Join(dirs[path.Dir(m[1])], path.Base(m[1]))
		b.executed[name] = append(b.executed[name], block{position{n[0], n[1]}, position{n[2], n[3]}, n[4]})
	}
	return lines.Err()
}
