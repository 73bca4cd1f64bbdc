package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// A line is a strategy of the example in one of its scenarios.
type line struct {
	Scenario  string `json:"scenario"`
	Strategy  string `json:"strategy"`
	Sent      int    `json:"sent"`
	LaterPeak int    `json:"later_peak"` // of the requests within 100 ms after the first second
	All       string `json:"all_served"` // when all calls were served
	Failed    int    `json:"failed"`
}

// The strategies that are compared.
const (
	ours  = "heed"
	other = "full jitter"
)

// example runs examples/herd, in dir, prints heed without StartJitter beside the loop with full jitter, and
// reports whether heed sends more requests in any scenario.
func example(dir string, asJSON bool) (more bool, err error) {
	cmd := exec.Command("go", "run", ".")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return false, fmt.Errorf("go run . in %s: %w", dir, err)
	}
	lines := parse(out)
	if len(lines) == 0 {
		return false, fmt.Errorf("go run . in %s: printed no table", dir)
	}
	for _, l := range lines {
		if l.Strategy != ours && l.Strategy != other {
			continue
		}
		if asJSON {
			_ = json.NewEncoder(os.Stdout).Encode(l)
			continue
		}
		fmt.Printf("%-8s %-12s %6d sent, at most %4d within 100 ms after the first second, all served after %s, %d failed\n",
			l.Scenario, l.Strategy, l.Sent, l.LaterPeak, l.All, l.Failed)
	}
	return sendsMore(lines), nil
}

// sendsMore reports whether heed sends more requests than the other strategy in any scenario.
func sendsMore(lines []line) bool {
	sent := map[[2]string]int{}
	for _, l := range lines {
		sent[[2]string{l.Scenario, l.Strategy}] = l.Sent
	}
	for _, l := range lines {
		if l.Strategy == ours && l.Sent > sent[[2]string{l.Scenario, other}] {
			return true
		}
	}
	return false
}

var gap = regexp.MustCompile(` {2,}`)

// parse reads the tables of the example: a line "scenario: description" and, after others, a line for each
// strategy.
func parse(out []byte) (lines []line) {
	scenario := ""
	for text := range bytes.Lines(out) {
		trimmed := strings.TrimSpace(string(text))
		if name, _, found := strings.Cut(trimmed, ": "); found {
			scenario = name
		}
		cells := gap.Split(trimmed, -1)
		if len(cells) != 9 || cells[0] == "strategy" {
			continue
		}
		l := line{Scenario: scenario, Strategy: cells[0], All: cells[7]}
		for i, to := range map[int]*int{1: &l.Sent, 4: &l.LaterPeak, 8: &l.Failed} {
			*to, _ = strconv.Atoi(cells[i])
		}
		lines = append(lines, l)
	}
	return lines
}
