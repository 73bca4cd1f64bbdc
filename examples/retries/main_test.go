package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRunScenarios_showsRetries(t *testing.T) {
	var out strings.Builder
	require.NoError(t, runScenarios(&out))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 1+len(scenarios))
	for i, want := range []string{"429 200 2", "503 200 3", "no response 200 2", "503 200 2", "500 500 1", "500 200 2", "503 503 1"} {
		require.Contains(t, strings.Join(strings.Fields(lines[i+1]), " "), scenarios[i].title+" "+want)
	}
	require.Contains(t, lines[5], "idempotent")
	require.Contains(t, lines[7], "context deadline exceeded", "the deadline is the first of the rules that an hour breaks")
}
