package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const code = `package p

import "sync"

var pool sync.Pool

type padded struct{ _ [64]byte }

// Least returns the lesser of two numbers, but 0 at least.
func Least(a, b int) (n int) {
	_ = padded{}
	seen := make(map[int]bool, 2)
	list := append(make([]int, 0, 2), a, b)
	for i := range list {
		seen[list[i]] = true
	}
	pool.Put(&seen)
	if n = a; b < a {
		n = b
	}
	return max(n, 0)
}
`

const tests = `package p

import "testing"

func TestLeast(t *testing.T) {
	if Least(1, 2) != 1 || Least(2, 1) != 1 || Least(1, 1) != 1 {
		t.Fatal()
	}
}
`

// module writes a module of two packages, one of which tests the other, and returns its
// root.
func module(t *testing.T) string {
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.24\n", "p/p.go": code, "p/p_test.go": tests,
		"q/q.go":      "package q\n\nimport \"m/p\"\n\n// Zero is 0.\nvar Zero = p.Least(-1, 5)\n",
		"q/q_test.go": "package q\n\nimport \"testing\"\n\nfunc TestZero(t *testing.T) {\n\tif Zero != 0 {\n\t\tt.Fatal()\n\t}\n}\n",
	} {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return root
}

func TestChanges_ofAFile(t *testing.T) {
	p, err := load(t.Context(), module(t))
	require.NoError(t, err)
	all, err := p.changes(func(c change) bool { return c.File == "p/p.go" })
	require.NoError(t, err)
	var got []string
	for _, c := range all {
		got = append(got, c.String())
	}
	require.Equal(t, []string{
		`p/p.go:13: constant off by one: "0" becomes "1"`,
		`p/p.go:15: deleted statement: "seen[list[i]] = true" becomes ""`,
		`p/p.go:18: negated condition: "b < a" becomes "!(b < a)"`,
		`p/p.go:18: swapped operator: "<" becomes "<="`,
		`p/p.go:19: deleted statement: "n = b" becomes ""`,
		`p/p.go:21: constant off by one: "0" becomes "1"`,
	}, got)
}

func TestSelection(t *testing.T) {
	const exclude = `^quota/(internal/.*|[^/]*)$`
	for name, tt := range map[string]struct {
		pkg, exclude string
		tracker      bool
		want         []string
	}{
		"outside the tracker":  {exclude: exclude, want: []string{"quota/fleet/codec.go:1", "quota/headers/name.go:2", "retry.go:4"}},
		"tracker":              {exclude: exclude, tracker: true, want: []string{"quota/internal/hold/hold.go:3", "quota/tracker.go:5", "quota/tracker.go:6"}},
		"lines of the tracker": {pkg: `:5$`, exclude: exclude, tracker: true, want: []string{"quota/tracker.go:5"}},
		"a package":            {pkg: `^quota/fleet/`, want: []string{"quota/fleet/codec.go:1"}},
	} {
		wanted, err := selection(tt.pkg, tt.exclude, tt.tracker)
		require.NoError(t, err)
		var got []string
		for i, file := range []string{"quota/fleet/codec.go", "quota/headers/name.go", "quota/internal/hold/hold.go", "retry.go", "quota/tracker.go", "quota/tracker.go"} {
			if c := (change{File: file, Line: i + 1}); wanted(c) {
				got = append(got, c.at())
			}
		}
		require.Equal(t, tt.want, got, name)
	}
	_, err := selection("(", "", false)
	require.ErrorContains(t, err, "-pkg: ")
	_, err = selection("", "(", false)
	require.ErrorContains(t, err, "-exclude: ")
}

func TestReport_countsWhatIsNoticed(t *testing.T) {
	r := report{Seed: 7}
	for _, by := range []string{"m/p", "", "m/q"} {
		r.add(result{Noticed: by})
	}
	r.Share = 100 * float64(r.Noticed) / float64(r.Made)
	require.Equal(t, "noticed 2 of 3 changes (67 %), seed 7", r.String())
}

// Three of the changes affect behaviour. One of them is detected only by the package that
// imports the changed one. One change does not compile, because a variable becomes unused.
func TestRun_tellsWhatIsNoticed(t *testing.T) {
	root := module(t)
	p, err := load(t.Context(), root)
	require.NoError(t, err)
	all, err := p.changes(func(c change) bool { return c.File == "p/p.go" })
	require.NoError(t, err)
	by := map[string]string{}
	require.NoError(t, run(t.Context(), p, all, len(all), time.Minute, importers, func(r result) { by[r.String()] = r.Noticed }))
	require.Equal(t, map[string]string{
		`p/p.go:13: constant off by one: "0" becomes "1"`:          "",
		`p/p.go:18: negated condition: "b < a" becomes "!(b < a)"`: "m/p",
		`p/p.go:18: swapped operator: "<" becomes "<="`:            "",
		`p/p.go:19: deleted statement: "n = b" becomes ""`:         "m/p",
		`p/p.go:21: constant off by one: "0" becomes "1"`:          "m/q",
	}, by)
	text, err := os.ReadFile(filepath.Join(root, "p/p.go"))
	require.NoError(t, err)
	require.Equal(t, code, string(text), "no file is changed")
}

// Only the tests of packages in the scope run.
func TestTester_runsTestsInItsScope(t *testing.T) {
	packages := &packages{dirs: map[string]string{"m/quota": "quota", "m/quota/internal/hold": "quota/internal/hold", "m": "."}}
	tracker, hold, root := &pkg{ImportPath: "m/quota"}, &pkg{ImportPath: "m/quota/internal/hold"}, &pkg{ImportPath: "m"}
	for s, want := range map[scope][]bool{importers: {true, true, true}, ownPackage: {true, false, false}, ownTracker: {true, true, false}} {
		tests := &tester{packages: packages, scope: s}
		require.Equal(t, want, []bool{tests.runs(hold, hold), tests.runs(tracker, hold), tests.runs(root, hold)}, s)
	}
}

// Tests that fail without a change detect nothing.
func TestRun_needsTestsThatPass(t *testing.T) {
	root := module(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "p/p_test.go"), []byte("package p\n\nimport \"testing\"\n\nfunc TestLeast(t *testing.T) { t.Fatal() }\n"), 0o600))
	p, err := load(t.Context(), root)
	require.NoError(t, err)
	all, err := p.changes(func(change) bool { return true })
	require.NoError(t, err)
	require.ErrorContains(t, run(t.Context(), p, all, 1, time.Minute, importers, func(result) {}), "the tests of m/p fail without a change")
}

const manyTests = `package p

import (
	"os"
	"testing"
)

func TestLeast(t *testing.T) { Least(2, 1) }

func TestLeast_inOrder(t *testing.T) { Least(1, 2) }

func TestOther(*testing.T) {}

// TestByChance fails each second time.
func TestByChance(t *testing.T) {
	Least(1, 2)
	if _, err := os.Stat("failed"); err == nil {
		return
	}
	if Least(1, 2) == 2 {
		if err := os.WriteFile("failed", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Fatal()
	}
}
`

// The tests that run are those that execute the statement. A test that fails once, and not
// again, does not count.
func TestRun_needsTestsThatExecuteTheChange(t *testing.T) {
	root := module(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "p/p_test.go"), []byte(manyTests), 0o600))
	p, err := load(t.Context(), root)
	require.NoError(t, err)
	all, err := p.changes(func(c change) bool { return c.Line == 18 || c.Line == 19 })
	require.NoError(t, err)
	tests := &tester{packages: p, timeout: time.Minute, dir: t.TempDir(), baselines: map[string]*baseline{}}
	b, err := tests.baseline(t.Context(), p.all[0])
	require.NoError(t, err)
	var names [][]string
	for _, c := range all {
		var of []string
		for _, one := range b.testsOf(c) {
			of = append(of, one.name)
		}
		slices.Sort(of)
		names = append(names, of)
	}
	every := []string{"TestByChance", "TestLeast", "TestLeast_inOrder"}
	require.Equal(t, [][]string{every, every, {"TestLeast"}}, names)
	require.NoError(t, run(t.Context(), p, all, len(all), time.Minute, ownPackage, func(r result) {
		require.Empty(t, r.Noticed, r.String())
		require.True(t, r.Executed)
	}))
	require.FileExists(t, filepath.Join(root, "p/failed"), "TestByChance has failed once")
}

// A change that no test executes is not noticed.
func TestRun_withoutATest(t *testing.T) {
	root := module(t)
	require.NoError(t, os.WriteFile(filepath.Join(root, "p/p_test.go"), []byte("package p\n\nimport \"testing\"\n\nfunc TestOther(*testing.T) {}\n"), 0o600))
	p, err := load(t.Context(), root)
	require.NoError(t, err)
	all, err := p.changes(func(c change) bool { return c.Line == 19 })
	require.NoError(t, err)
	made := 0
	require.NoError(t, run(t.Context(), p, all, len(all), time.Minute, ownPackage, func(r result) {
		made++
		require.Empty(t, r.Noticed)
		require.False(t, r.Executed)
	}))
	require.Equal(t, 1, made)
}
