package rules_test

import (
	"fmt"

	"github.com/heed-go/heed/rules"
)

// Lint reports parts of a file that probably have an unintended effect.
func ExampleLint() {
	found, err := rules.Lint([]byte(`
domain: api
limits:
  - {name: all, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {name: search, match: /search, rate_limit: {unit: minute, requests_per_unit: 200, granularity: 15s}}
  - {name: files, match: /files/, rate_limit: {unit: minute, requests_per_unit: 100}}
`), rules.Config{})
	for _, f := range found {
		fmt.Println(f.Problem)
	}
	fmt.Println(err)
	// Output:
	// at the edge of two windows twice as many are granted: here 200 (so in 2 of 3 limits)
	// a request counts up to 15s too short, which is 25 % of 1m
	// it never rejects: all in line 4 lets no more than 100 per 1m from the epoch through
	// <nil>
}
