package headers_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
)

var update = flag.Bool("update", false, "write testdata/reports.txt")

// TestParse_reportsOfRecordedResponses compares every field of the reports of all recorded
// and documented responses, with the table of providers and without it, with
// testdata/reports.txt. After an intended change, run the test with -update and review the
// difference.
func TestParse_reportsOfRecordedResponses(t *testing.T) {
	const file = "testdata/reports.txt"
	var got strings.Builder
	for _, cases := range []string{"testdata/cases.jsonl", "testdata/more_cases.jsonl"} {
		all := readCases(t, cases)
		for i := range all {
			rules, table := fullReport(all[i].Report(false)), fullReport(all[i].Report(true))
			fmt.Fprintf(&got, "%s\n%s", all[i].ID, rules)
			if table != rules {
				fmt.Fprintf(&got, "with the table\n%s", table)
			}
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, strings.Split(string(want), "\n"), strings.Split(got.String(), "\n"))
}

// fullReport returns all that r states, with a line for each limit.
func fullReport(r headers.Report) string {
	var b strings.Builder
	for _, l := range r.Limits {
		fmt.Fprintf(&b, "\t%q %s", l.Name, l.Unit)
		stated := func(has bool, name string, n any) {
			if has {
				fmt.Fprintf(&b, " %s %v", name, n)
			}
		}
		stated(l.PartitionKey != "", "key", l.PartitionKey)
		stated(l.HasLimit, "limit", l.Limit)
		stated(l.HasRemaining, "remaining", l.Remaining)
		stated(l.HasUsed, "used", l.Used)
		stated(l.HasReset, "reset", fmt.Sprint(l.ResetAfter, " as ", l.ResetFormat))
		stated(l.Window != 0, "window", l.Window)
		stated(l.Rate != 0, "rate", l.Rate)
		stated(l.RemoteLimit().Resolution != 0, "resolution", l.RemoteLimit().Resolution)
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\tstated: %v", r.Stated)
	if r.HasRetryAfter {
		fmt.Fprintf(&b, ", retry %v as %v", r.RetryAfter, r.RetryFormat)
	}
	if r.Wait != 0 {
		fmt.Fprintf(&b, ", wait %v", r.Wait)
	}
	for i, is := range []bool{r.Throttled, r.Permanent, r.Global, r.Stale} {
		if is {
			b.WriteString([]string{", throttled", ", permanent", ", global", ", stale"}[i])
		}
	}
	if len(r.Violated) > 0 {
		fmt.Fprintf(&b, ", violated %q", r.Violated)
	}
	b.WriteByte('\n')
	return b.String()
}
