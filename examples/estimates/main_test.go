package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/heed-go/heed/heedtest"
	"github.com/stretchr/testify/require"
)

// In a synctest bubble waiting takes no time.
func TestRunScenarios_waitsOnlyWhereThereIsALimit(t *testing.T) {
	var rejected []int // of several runs: the number is random, as backoffs are
	for range 5 {
		synctest.Test(t, func(t *testing.T) {
			var out strings.Builder
			require.NoError(t, runScenarios(&out, true, (*heedtest.Server).StartInMemory))
			lines := json.NewDecoder(strings.NewReader(out.String()))
			var healthy, limited result
			require.NoError(t, lines.Decode(&healthy))
			require.NoError(t, lines.Decode(&limited))
			require.False(t, lines.More())

			require.Zero(t, healthy.Failed)
			require.Equal(t, 420, healthy.Sent, "one of 20 is sent again")
			require.Empty(t, healthy.Waited)
			require.Empty(t, healthy.Events)

			require.Zero(t, limited.Failed)
			require.Positive(t, limited.Waited["learned rate"])
			rejected = append(rejected, limited.Rejected)
			require.Condition(t, func() bool {
				return slices.ContainsFunc(limited.Events, func(e event) bool { return strings.HasPrefix(e.What, "learned rate: learned, ") })
			}, "%v", limited.Events)
		})
	}
	slices.Sort(rejected)
	require.Less(t, rejected[len(rejected)/2], 60, "the burst of all callers, and a measurement")
}

func TestRunScenarios_printsTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		require.NoError(t, runScenarios(&out, false, (*heedtest.Server).StartInMemory))
		for _, want := range []string{"server   calls   failed   sent   rejected   waited", "no call waited", `calls waited longest for "learned rate"`} {
			require.Contains(t, out.String(), want)
		}
	})
}
