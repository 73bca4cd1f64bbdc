package quota_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/headercases"
)

// undecidable says why a case cannot be read in full, with the table or by rules alone.
var undecidable = map[string]string{
	"anthropic-429-requests":        "the case gives a window of 60 s that no header carries; other answers of the same API come without one",
	"shopify-graphql-200-throttled": "the numbers of the limit are in a body that the case does not quote",
}

// undecidableByRules says what the headers alone leave open; the table or the body tells it.
var undecidableByRules = map[string]string{
	"github-403-secondary-search":     "a 403 with units left: only the body says that it is a refusal",
	"github-403-secondary-no-headers": "a 403 without any header: only the body says that it is a refusal",
	"github-graphql-200-rate-limited": "a refusal inside a 200: only the body says so",
	"shopify-graphql-200-throttled":   "a refusal inside a 200: only the body says so",
	"trello-db-query-time":            "milliseconds of database time: nothing in the name tells the unit",
	"mistral-2024-bysize":             "\"size\" is measured in tokens: nothing in the name tells the unit",
	"shopify-429-not-exhausted":       "which of the words of the header is the bucket's name",
	"prisjakt-delta-ms":               "600000 is as good a delay in seconds as in milliseconds",
	"jira-429":                        "points: no header tells the unit",
	"buildkite-200":                   "points: no header tells the unit",
	"okta-concurrency-429":            "zeros that mean a limit of requests in flight",
	"xero-429":                        "the sizes of the limits are in the documentation only",
}

func TestParse_readsTheCases(t *testing.T) {
	all := readCases(t)
	full := replay(t, all, true, undecidable)
	require.GreaterOrEqual(t, full, 0.95)
	full = replay(t, all, false, undecidableByRules)
	require.GreaterOrEqual(t, full, 0.84)
}

// replay returns the share of cases that are read in full. A miss without a
// reason is a failure, and so is a reason without a miss.
func replay(t *testing.T, all []headercases.Case, table bool, reasons map[string]string) float64 {
	misses := 0
	for i := range all {
		c := &all[i]
		wrong := c.Compare(c.Report(table), table)
		if wrong != "" {
			misses++
			t.Logf("table %v: %s: %s: %s", table, c.ID, reasons[c.ID], wrong)
		}
		if reason := reasons[c.ID]; (wrong == "") != (reason == "") {
			t.Errorf("table %v: %s: wrong is %q, reason is %q", table, c.ID, wrong, reason)
		}
	}
	return 1 - float64(misses)/float64(len(all))
}

func readCases(t testing.TB) []headercases.Case {
	f, err := os.Open("testdata/cases.jsonl")
	require.NoError(t, err)
	defer f.Close()
	all, err := headercases.Read(f)
	require.NoError(t, err)
	require.Len(t, all, 197)
	return all
}
