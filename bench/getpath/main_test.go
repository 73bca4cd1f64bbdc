package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const report = `github.com/heed-go/heed/transport.go:126:	NewClient	75.0%
github.com/heed-go/heed/transport.go:137:	Transport.RoundTrip	100.0%
github.com/heed-go/heed/transport.go:180:	Transport.CloseIdleConnections	0.0%
github.com/heed-go/heed/quota/tracker.go:20:	Tracker.Demand	50.0%
github.com/heed-go/heed/bench/getpath/client/main.go:17:	main	80.0%
github.com/heed-go/heed/throttleredis/store.go:17:	init	80.0%
github.com/other/benches.go:1:	main	80.0%
total	(statements)	12.3%
`

func TestExecuted_countsFunctionsOfTheModule(t *testing.T) {
	got, err := executed(strings.NewReader(report))
	require.NoError(t, err)
	require.Equal(t, []function{
		{".", "transport.go", 126, "NewClient"},
		{".", "transport.go", 137, "Transport.RoundTrip"},
		{"quota", "tracker.go", 20, "Tracker.Demand"},
	}, got)
	require.Equal(t, 2, countFiles(got))
}

func TestExecuted_reportsUnknownOutput(t *testing.T) {
	_, err := executed(strings.NewReader("transport.go\tNewClient\t75.0%\n"))
	require.Error(t, err)
}

func TestPrintList_groupsByPackage(t *testing.T) {
	functions, err := executed(strings.NewReader(report))
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, printList(&out, functions))
	require.Equal(t, ".: files 1 functions 2\n\ttransport.go:126\tNewClient\n\ttransport.go:137\tTransport.RoundTrip\n"+
		"quota: files 1 functions 1\n\ttracker.go:20\tTracker.Demand\n", out.String())
}
