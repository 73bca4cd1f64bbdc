package debugpage

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/outagetest"
)

// TestPage_anOutageIsAtMost20Decisions simulates outages of 10 s with 200 callers.
func TestPage_anOutageIsAtMost20Decisions(t *testing.T) {
	callers := 200
	if testing.Short() {
		callers = 80
	}
	for name, outage := range outagetest.Outages() {
		synctest.Test(t, func(t *testing.T) {
			p := new(Page)
			transport := outage.Transport(p.Trace())
			p.Add("", transport)
			outagetest.Run(t.Context(), transport, callers)
			decisions, events := stateOf(t, p).Decisions, 0
			for _, d := range decisions {
				events += d.Count
				t.Logf("%s: %s × %d: %s", name, d.Kind, d.Count, d.Text)
			}
			t.Logf("%s: an outage of 10 s with %d callers: %d events, %d lines of decisions", name, callers, events, len(decisions))
			require.Greater(t, events, 1000, name)
			require.LessOrEqual(t, len(decisions), 20, name)
		})
	}
}
