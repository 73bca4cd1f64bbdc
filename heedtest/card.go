package heedtest

import (
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A Result is the outcome of a check.
type Result string

// The results of checks.
const (
	Passed Result = "passed"
	Failed Result = "failed"

	// NotApplicable means that the client never came into the situation of the check. A
	// client without retries cannot retry too early.
	NotApplicable Result = "not applicable"
)

// A Mark is the result of one check.
type Mark struct {
	// Check is the name of the check.
	Check string `json:"check"`

	// Result is Passed, Failed or NotApplicable.
	Result Result `json:"result"`

	// Figure is the worst value that was measured in the trials of the check, in Unit. The
	// check fails if Figure is greater than Limit. It also fails, whatever Figure is, if the
	// client panics, hangs, or sends more than it could ever need.
	Figure float64 `json:"figure"`

	// Limit is the largest Figure that passes, in Unit.
	Limit float64 `json:"limit"`

	// Unit is the unit of Figure and Limit, such as "requests".
	Unit string `json:"unit"`

	// Detail is a sentence about what went wrong. Empty means that the check passed.
	Detail string `json:"detail,omitempty"`
}

// String returns the mark in one line.
func (m Mark) String() string {
	s := fmt.Sprintf("%s: %s: %s %s, limit %s", m.Check, m.Result, number(m.Figure), m.Unit, number(m.Limit))
	if m.Detail != "" {
		s += ": " + m.Detail
	}
	return s
}

// A Card holds the marks of one client, in the order of the checks.
type Card []Mark

// Failed returns the marks of the checks that failed.
func (c Card) Failed() (failed []Mark) {
	for _, m := range c {
		if m.Result == Failed {
			failed = append(failed, m)
		}
	}
	return failed
}

// String returns the card as a table.
func (c Card) String() string {
	var s strings.Builder
	w := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	for _, m := range c {
		fmt.Fprintf(w, "%s\t%s\t%s\t(limit %s)\t%s\t%s\n", m.Check, m.Result, number(m.Figure), number(m.Limit), m.Unit, m.Detail)
	}
	_ = w.Flush()
	return s.String()
}

// number formats f with at most three decimals.
func number(f float64) string {
	s := strconv.FormatFloat(f, 'f', 3, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
