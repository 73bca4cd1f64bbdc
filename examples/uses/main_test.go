package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/examples/uses/stripe"
)

// maxAttempts is the default of heed.RetryPolicy.MaxAttempts.
const maxAttempts = 10

// TestScenarios_heedFailsNoCall checks each example with heed, and that the job is one that
// needs it.
func TestScenarios_heedFailsNoCall(t *testing.T) {
	for _, newScenario := range scenarios {
		s := newScenario()
		plain, heed := s.Run(t, 0)
		t.Logf("%+v", heed)
		require.Zero(t, heed.Failed, s.Name)
		require.Zero(t, heed.Duplicated, s.Name)
		// Slow start lasts 100 ms and may end before the first response (QUOTA section 2 rule 8), and until several
		// rejections have shown that others would be rejected, these do not wait (rule 3). So more than the server admits
		// is sent once.
		require.LessOrEqual(t, heed.Throttled*2, heed.Sent, "%s: more than half was throttled", s.Name)
		require.LessOrEqual(t, heed.MostSends, maxAttempts, s.Name)
		if heed.OldestSignature != nil {
			require.LessOrEqual(t, *heed.OldestSignature, 1.0, s.Name)
		}
		require.Positive(t, plain.Failed+plain.Duplicated, "%s does not need heed", s.Name)
	}
}

// TestPages_showTheExamples checks that docs/with-sdks.md and docs/uses.md show the client of each
// example, as it is and with fewer than 100 lines, and no other code.
func TestPages_showTheExamples(t *testing.T) {
	page := ""
	for _, name := range []string{"with-sdks.md", "uses.md"} {
		text, err := os.ReadFile("../../docs/" + name)
		require.NoError(t, err)
		page += string(text)
	}
	clients, err := filepath.Glob("*/client.go")
	require.NoError(t, err)
	require.Len(t, clients, len(scenarios))
	for _, client := range clients {
		code, err := os.ReadFile(client)
		require.NoError(t, err)
		require.Less(t, strings.Count(string(code), "\n"), 100, client)
		block := "```go\n" + string(code) + "```\n"
		require.True(t, strings.Contains(page, block), "%s is on neither page as it is", client)
		page = strings.Replace(page, block, "", 1)
	}
	others, err := os.ReadFile("defaults/clients.go")
	require.NoError(t, err)
	for _, block := range strings.Split(page, "```go\n")[1:] {
		code, _, found := strings.Cut(block, "```")
		require.True(t, found)
		require.True(t, strings.Contains(string(others), code), code)
	}
}

// TestRun_defaultWithFewInFlight checks that bounding the requests in flight is not enough, with
// one of the examples.
func TestRun_defaultWithFewInFlight(t *testing.T) {
	plain, _ := stripe.Scenario().Run(t, 16)
	require.Positive(t, plain.Failed)
	require.Greater(t, plain.Elapsed, 1.0) // without a bound all requests are sent at the start
}

func TestWrite_tableAndJSON(t *testing.T) {
	age := 0.25
	results := []scenario.Result{
		{Example: "a", Client: "default", Calls: 10, Sent: 14, Throttled: 3, Duplicated: 1, Failed: 2, MostSends: 3, Elapsed: 1.25},
		{Example: "a", Client: "heed", Calls: 10, Sent: 10, MostSends: 1, Elapsed: 2, OldestSignature: &age},
	}
	var table, lines strings.Builder
	require.NoError(t, write(&table, results, false))
	require.Contains(t, table.String(), "a  default     10    14          3           1       2           3  1.2 s                 -")
	require.NoError(t, write(&lines, results, true))
	var second scenario.Result
	_, line, _ := strings.Cut(lines.String(), "\n")
	require.NoError(t, json.Unmarshal([]byte(line), &second))
	require.Equal(t, results[1], second)
	require.Contains(t, lines.String(), `{"example":"a","client":"default","calls":10,"sent":14,"throttled":3,"duplicated":1,"failed":2,"most_sends":3,"elapsed_s":1.25}`)
}

func TestChoose_byPartOfTheName(t *testing.T) {
	chosen, err := choose("STRIPE")
	require.NoError(t, err)
	require.Len(t, chosen, 1)
	require.Equal(t, "stripe-go", chosen[0].Name)
	all, err := choose("")
	require.NoError(t, err)
	require.Len(t, all, len(scenarios))
	_, err = choose("nothing")
	require.EqualError(t, err, `no example has "nothing" in its name`)
}
