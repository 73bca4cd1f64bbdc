package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// module is a repository whose tracker has some constants.
var module = map[string]string{
	"go.mod": "module example.com/m\n\ngo 1.25\n",
	"quota/quota.go": `package quota

import "time"

const (
	Limit      = 10
	one        = 1
	wait       = 3 * time.Second
	share      = .5
	name       = "text"
	big  int64 = 1 << 62
)

type mode int

const (
	full  mode = iota
	small
	other mode = 7
)

const kilo = 1 << (10 * (iota + 1))

func Wait() time.Duration {
	const factor = 2.
	return wait * factor
}
`,
	"quota/quota_test.go": `package quota

import "testing"

const inTest = 5

func TestWait(t *testing.T) {
	if Wait().Seconds() < 4 {
		t.Fatal("too short")
	}
}
`,
	"quota/internal/hold/hold.go": "package hold\n\nconst Max = 8\n\nvar Slots [Max / 8]int\n\nvar _ = Slots[0]\n",
	"quota/headers/headers.go":    "package headers\n\nconst maximum = 3\n",
	"other/other.go":              "package other\n\nconst maximum = 3\n",
}

// write writes module to a folder.
func write(t *testing.T) (root string) {
	root = t.TempDir()
	for name, text := range module {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
	}
	return root
}

func TestFind_findsTheNumbersOfTheTracker(t *testing.T) {
	numbers, err := find(write(t))
	require.NoError(t, err)
	var found, changed []string
	for _, n := range numbers {
		found = append(found, n.String())
		for _, c := range n.changes() {
			changed = append(changed, c.Name+" "+c.Now)
		}
	}
	require.Equal(t, []string{
		"quota/quota.go:6: Limit = 10", "quota/quota.go:7: one = 1", "quota/quota.go:8: wait = 3s", "quota/quota.go:9: share = 0.5",
		"quota/quota.go:11: big = 4611686018427387904", "quota/quota.go:25: factor = 2", "quota/internal/hold/hold.go:3: Max = 8",
	}, found, "neither enumerations nor other packages")
	require.Equal(t, []string{"Limit 5", "Limit 20", "one 2", "wait 1.5s", "wait 6s", "share 0.25", "share 1",
		"big 2305843009213693952", "factor 1", "factor 4", "Max 4", "Max 16"}, changed, "neither 0 nor an overflow")
}

func TestRunner_findsConstantsThatMatter(t *testing.T) {
	root := write(t)
	numbers, err := find(root)
	require.NoError(t, err)
	var changes []change
	for _, n := range numbers {
		if n.Name == "wait" || n.Name == "Max" {
			changes = append(changes, n.changes()...)
		}
	}
	r := runner{command: "cd " + quote(root) + " && go test ./quota", timeout: time.Minute, dir: t.TempDir()}
	outcomes := map[string]string{}
	_, err = r.all(t.Context(), changes, func(x result) {
		outcomes[x.Name+" "+x.Now] = x.Outcome
		if x.Outcome == missesGoals {
			require.Contains(t, x.Output, "too short")
		}
	})
	require.NoError(t, err)
	for name, outcome := range outcomes {
		want := meetsGoals
		switch name {
		case "wait 1.5s":
			want = missesGoals
		case "Max 4":
			want = fails
		}
		require.Equal(t, want, outcome, name)
	}
	require.Len(t, outcomes, len(changes))
	text, err := os.ReadFile(filepath.Join(root, "quota/quota.go"))
	require.NoError(t, err)
	require.Equal(t, module["quota/quota.go"], string(text), "the checkout does not change")
}

// A command that misses goals without a change was an error. Nothing could be measured then while any goal was missed.
func TestRunner_countsWhatAChangeAdds(t *testing.T) {
	root := write(t)
	numbers, err := find(root)
	require.NoError(t, err)
	shorter := numbers[slices.IndexFunc(numbers, func(n number) bool { return n.Name == "wait" })].changes()
	command := "cd " + quote(root) + ` && go test ./quota; echo "row 1  | 1.5 x | missed: 3 sent early"; false`
	r := runner{command: command, timeout: time.Minute, dir: t.TempDir()}
	results, err := r.all(t.Context(), shorter, func(result) {})
	require.NoError(t, err)
	require.Len(t, results, 2)
	require.Equal(t, missesGoals, results[0].Outcome, "half as long")
	require.Equal(t, []string{"--- FAIL: TestWait"}, results[0].Missed, "not what is missed without a change")
	require.Equal(t, meetsGoals, results[1].Outcome, "twice as long")
}

func TestRunner_aRunThatIsKilledMissesAGoal(t *testing.T) {
	r := runner{command: "echo row: missed: a; kill -9 $$", timeout: time.Minute, dir: t.TempDir(), known: map[string]int{"row: a": 1}}
	added, _ := r.added(t.Context(), "")
	require.Equal(t, []string{"the command fails"}, added)
	r.command = "echo no row; false"
	added, _ = r.added(t.Context(), "")
	require.Equal(t, []string{"the command fails"}, added)
}

func TestRunner_needsACommandThatNamesMissedGoals(t *testing.T) {
	r := runner{command: "echo no such file; false", timeout: time.Minute, dir: t.TempDir()}
	_, err := r.all(t.Context(), nil, nil)
	require.ErrorContains(t, err, "no such file")
}

func TestMisses_namesGoalsWithoutFigures(t *testing.T) {
	require.Equal(t, map[string]int{
		"closed 429 5 %: # sent early": 1, "closed 429 5 %: # x the time of plain": 1, "nginx, 429, 20/s, job 1: # wasted of at most #": 1,
		"own: ": 2, "--- FAIL: TestA/b": 1,
	}, misses(`
closed 429 5 %   | plain 1.2 | missed: 3 sent early, 1.2 x the time of plain
closed 429 1 %   | plain 1.2 | met
nginx, 429, 20/s, job 1: missed: 34 wasted of at most 30
own      20    10ms heed 93.0% missed
own     100    10ms heed 94.0% missed
2 of 3 rows miss a goal
    --- FAIL: TestA/b (0.01s)
`))
}

func TestRunner_endsACommandThatTakesTooLong(t *testing.T) {
	r := runner{timeout: 100 * time.Millisecond, dir: t.TempDir()}
	start := time.Now()
	_, err := r.run(context.Background(), "sleep 30; true", "")
	require.Error(t, err)
	require.Less(t, time.Since(start), 9*time.Second)
}
