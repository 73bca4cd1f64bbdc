package headers_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

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
	for _, cases := range []string{"testdata/cases.jsonl", "testdata/more_cases.jsonl", "testdata/body_cases.jsonl"} {
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
	if string(want) != got.String() {
		expected, actual := strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")
		for i, line := range expected {
			require.Equal(t, line, actual[min(i, len(actual)-1)], "%s:%d", file, i+1)
		}
		require.Len(t, actual, len(expected))
	}
}

// fullReport returns all that r states, with a line for each limit.
func fullReport(r headers.Report) string {
	var b strings.Builder
	for _, l := range r.Limits {
		fmt.Fprintf(&b, "\t%q", l.Name)
		stated := func(has bool, name string, n any) {
			if has {
				fmt.Fprintf(&b, " %s %v", name, n)
			}
		}
		stated(l.Unit != "", "of", l.Unit)
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
	for i, d := range []time.Duration{r.Wait, r.MinDelay, r.SuggestedDelay} {
		if d != 0 {
			fmt.Fprintf(&b, ", %s %v", []string{"wait", "at least", "suggested"}[i], d)
		}
	}
	for i, is := range []bool{r.Throttled, r.Permanent, r.NotProcessed, r.Global, r.Stale} {
		if is {
			b.WriteString([]string{", throttled", ", permanent", ", not processed", ", global", ", stale"}[i])
		}
	}
	if len(r.Violated) > 0 {
		fmt.Fprintf(&b, ", violated %q", r.Violated)
	}
	b.WriteByte('\n')
	return b.String()
}

// TestParse_reportsOfForms compares the report of each response in testdata/forms.txt with
// the lines below it.
func TestParse_reportsOfForms(t *testing.T) {
	const file = "testdata/forms.txt"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	blocks := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	for i, block := range blocks {
		stated, want, _ := strings.Cut(block, "\n\t")
		got := parseForm(t, stated).report()
		if *update {
			blocks[i] = strings.TrimSpace(stated + "\n" + got)
			continue
		}
		require.Equal(t, strings.TrimSpace("\t"+want), strings.TrimSpace(got), stated)
	}
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(blocks, "\n\n")+"\n"), 0o600))
	}
}

// A form is a response of testdata/forms.txt.
type form struct {
	status     int
	host, body string
	header     http.Header
}

// parseForm reads the lines of a response.
func parseForm(t *testing.T, lines string) *form {
	r := &form{host: "api.test", header: http.Header{}}
	for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
		switch name, value, isHeader := strings.Cut(line, ": "); {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "@body "):
			r.body = strings.TrimPrefix(line, "@body ")
		case strings.HasPrefix(line, "@"):
			_, err := fmt.Sscanf(line+" "+r.host, "@%d %s", &r.status, &r.host)
			require.NoError(t, err)
		default:
			require.True(t, isHeader, line)
			r.header.Add(name, value)
		}
	}
	return r
}

// report returns the report of r, or "" for a comment. The local clock is wrong by an hour.
func (r *form) report() string {
	if len(r.header) == 0 && r.status == 0 {
		return ""
	}
	r.header.Set("Date", "Tue, 14 Nov 2023 22:13:20 GMT")
	var reader headers.Reader
	rep := reader.Parse(r.host, max(r.status, http.StatusOK), r.header, time.Unix(1700003600, 0))
	if r.body != "" {
		reader.ReadBody(r.status, r.header, []byte(r.body), &rep)
	}
	return fullReport(rep)
}
