// Package replay replays reference traces with our limiters, operation by operation.
//
// A file of traces has one scenario per line, in JSON. The fields of a line determine how
// it is replayed, never the name of a file or a scenario: see shapes. Each shape has its
// own file in this package, which states the intended differences between our decisions and
// those of the trace, with reasons.
//
// A scenario may be flagged in the notes on the traces because rounding or a peculiarity of
// another limiter determined a decision. Such a scenario is replayed as well, and its
// differences count as waived.
package replay

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A Report compares our decisions with a file of traces.
type Report struct {
	File       string `json:"file"`
	Scenarios  int    `json:"scenarios"`
	Ops        int    `json:"ops"`               // operations that were compared
	Mismatches int    `json:"mismatches"`        // operations with a different result
	Waived     int    `json:"waived"`            // the same, in scenarios that the trace flags as allowed to differ
	Skipped    int    `json:"skipped,omitempty"` // scenarios without a limiter

	// Differences describes the first mismatch of each scenario.
	Differences []string `json:"-"`
}

// A shape is a kind of scenario.
type shape struct {
	fields []string // fields that a line must have
	replay func(line []byte, t *result) error
}

// shapes are all known shapes; the first that matches a line replays it.
var shapes = []shape{
	{[]string{"algo", "params", "ops"}, replayAlgorithm},
	{[]string{"period_s", "rate", "burst", "ideal_flips", "ops"}, replayGCRA},
	{[]string{"rate_milli", "burst", "delay", "ops"}, replayNginx},
	{[]string{"interval_ms", "max", "min_difference_ms", "ops"}, replayRolling},
	{[]string{"limit", "burst", "waiters"}, replayRateWait},
	{[]string{"limit", "burst", "time_goes_back", "ops"}, replayRate},
	{[]string{"permitsPerSecond", "warmup_ms", "coldFactor", "ops"}, replayGuava},
	{[]string{"kind", "params"}, replayBackoff},
}

// File replays a file with limiters in memory. It returns false if the file has no scenario
// of a known shape.
func File(path string) (Report, bool, error) { return InMemory.File(path) }

// File replays a file. It returns false if the file has no scenario of a known shape.
func (l *Limiters) File(path string) (Report, bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return Report{}, false, err
	}
	defer f.Close()
	r := Report{File: filepath.Base(path)}
	known, err := r.readLines(f, l)
	return r, known, err
}

func (r *Report) readLines(in io.Reader, l *Limiters) (known bool, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		s, err := shapeOf(lines.Bytes())
		if err != nil {
			return known, fmt.Errorf("replay: %s, line %d: %w", r.File, n, err)
		}
		if s == nil {
			continue
		}
		known = true
		t := result{limiters: l}
		if err := s.replay(lines.Bytes(), &t); errors.Is(err, errNoLimiter) {
			r.Skipped++
			continue
		} else if err != nil {
			return known, fmt.Errorf("replay: %s, line %d: %w", r.File, n, err)
		}
		r.add(t, n)
	}
	return known, lines.Err()
}

func (r *Report) add(t result, line int) {
	r.Scenarios++
	r.Ops += t.ops
	r.Mismatches += t.mismatches
	r.Waived += t.waived
	if t.first != "" {
		r.Differences = append(r.Differences, fmt.Sprintf("%s, line %d: %s", r.File, line, t.first))
	}
}

// shapeOf returns the shape of a line, or nil if it is unknown.
func shapeOf(line []byte) (*shape, error) {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(line, &has); err != nil {
		return nil, err
	}
	for i := range shapes {
		if shapes[i].matches(has) {
			return &shapes[i], nil
		}
	}
	return nil, nil
}

func (s *shape) matches(has map[string]json.RawMessage) bool {
	for _, f := range s.fields {
		if _, ok := has[f]; !ok {
			return false
		}
	}
	return true
}

// A result counts the operations of one scenario.
type result struct {
	limiters *Limiters

	ops, mismatches, waived int
	first                   string // first difference that is not waived
	waive                   bool   // further differences are waived
	failed                  bool   // the current operation has differed
}

// op begins the next operation of a scenario.
func (t *result) op() {
	t.ops++
	t.failed = false
}

// expect records a difference between got and want, once per operation.
func expect[T comparable](t *result, name string, want, got T) {
	if want != got {
		t.differ("%s: want %v, got %v", name, want, got)
	}
}

// near is expect for numbers that may differ by tolerance.
func near(t *result, name string, want, got, tolerance float64) {
	if !(want-got <= tolerance && got-want <= tolerance) {
		t.differ("%s: want %v, got %v", name, want, got)
	}
}

func (t *result) differ(format string, args ...any) {
	if t.failed {
		return
	}
	t.failed = true
	if t.waive {
		t.waived++
		return
	}
	t.mismatches++
	if t.first == "" {
		t.first = fmt.Sprintf("operation %d: ", t.ops) + fmt.Sprintf(format, args...)
	}
}
