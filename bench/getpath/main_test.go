package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const profile = `mode: set
github.com/heed-go/heed/transport.go:126.2,128.3 3 1
github.com/heed-go/heed/transport.go:137.2,139.16 2 1
github.com/heed-go/heed/transport.go:180.2,181.3 1 0
github.com/heed-go/heed/quota/tracker.go:20.2,22.9 4 7
github.com/heed-go/heed/log.go:20.2,22.9 4 0
github.com/heed-go/heed/bench/getpath/client/main.go:17.2,18.3 9 1
github.com/heed-go/heed/throttleredis/store.go:17.2,18.3 9 1
github.com/other/benches.go:1.2,3.4 9 1
`

func TestExecuted_countsStatementsOfTheModule(t *testing.T) {
	got, err := executed(strings.NewReader(profile))
	require.NoError(t, err)
	require.Equal(t, []file{{".", "transport.go", 5}, {"quota", "tracker.go", 4}}, got)
	require.Equal(t, 9, sum(got))
}

func TestExecuted_reportsUnknownOutput(t *testing.T) {
	for _, line := range []string{"transport.go", "heed/transport.go:1.2,3.4 3", "heed/transport.go:1.2,3.4 x 1", "heed/transport.go 3 1"} {
		_, err := executed(strings.NewReader("mode: set\n" + line + "\n"))
		require.Error(t, err, line)
	}
}

func TestPrintList_groupsByPackage(t *testing.T) {
	files, err := executed(strings.NewReader(profile))
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, printList(&out, files))
	require.Equal(t, ".: statements 5 files 1\n\t   5  transport.go\nquota: statements 4 files 1\n\t   4  tracker.go\n", out.String())
}
