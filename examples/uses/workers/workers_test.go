package workers

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/quota/fleet"
)

// TestScenario_sharingHelps checks that the job is one for which the processes should share
// what they learn: without a bus, at least a fifth more requests are throttled. It was three times as many while the
// first rejection held all processes. Now several have to show that others would be rejected (QUOTA section 2 rule 3),
// which takes about as many as a process has goroutines: 212 are throttled without a bus, and 80 to 160 with it,
// because which process has enough of them first depends on chance.
func TestScenario_sharingHelps(t *testing.T) {
	alone := func(base http.RoundTripper, _ fleet.Bus) (*http.Client, func()) {
		return heed.NewClient(&heed.Transport{Base: base}), func() {}
	}
	s := Scenario()
	var shared, apart scenario.Result
	synctest.Test(t, func(t *testing.T) { shared = s.Measure(t.Context(), s.Heed) })
	synctest.Test(t, func(t *testing.T) { apart = s.Measure(t.Context(), work(alone)) })
	require.GreaterOrEqual(t, 10*apart.Throttled, 12*shared.Throttled)
	t.Logf("throttled: %d of %d with a bus, %d of %d without", shared.Throttled, shared.Sent, apart.Throttled, apart.Sent)
}
