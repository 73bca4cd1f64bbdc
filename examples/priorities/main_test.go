package main

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// In a synctest bubble time is exact: 50 requests per second, the first immediately.
func TestRun_priorityAndTenants(t *testing.T) {
	want := [][]string{
		{"batch job   60 calls   last answer after 1.28 s", "a person    5 calls    last answer after 0.10 s"},
		{"large customer   60 calls   last answer after 1.38 s", "small customer   10 calls   last answer after 0.40 s"},
		{"searches   5 calls    last answer after 2.00 s", "items      40 calls   last answer after 0.82 s"},
	}
	for i, s := range scenarios {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			run(&out, s.groups)
			for _, line := range want[i] {
				require.Contains(t, out.String(), line, s.title)
			}
		})
	}
}
