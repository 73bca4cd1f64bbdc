// Package scorecard has the results of the checks of package heedtest as figures, for programs of this
// repository that compare clients.
package scorecard

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
)

// Run runs the checks with the given names, or all of them if there are none, and returns the
// marks. A name of no check gets a failed mark. Run uses t only for virtual time: failed checks
// do not fail t. Package heedtest sets it; import that.
var Run func(t *testing.T, newClient func(base http.RoundTripper) http.RoundTripper, names ...string) Card

// Names returns the names of all checks, in the order in which they run. Package heedtest sets it.
var Names func() []string

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
	s := fmt.Sprintf("%s: %s: %s %s, limit %s", m.Check, m.Result, Number(m.Figure), m.Unit, Number(m.Limit))
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
		fmt.Fprintf(w, "%s\t%s\t%s\t(limit %s)\t%s\t%s\n", m.Check, m.Result, Number(m.Figure), Number(m.Limit), m.Unit, m.Detail)
	}
	_ = w.Flush()
	return s.String()
}

// Number formats f with at most three decimals.
func Number(f float64) string {
	s := strconv.FormatFloat(f, 'f', 3, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
