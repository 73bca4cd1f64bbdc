package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle/queue"
)

// wantDecisions holds the decisions for each policy of the file: # granted, + granted
// beyond the limit, - rejected.
var wantDecisions = map[string]string{
	"20 accounts a day per IP": `
  Nov 21 10:00:00             20# --  again in 14h0m0s
  Nov 21 23:00:00             -  again in 1h0m0s
  Nov 22 00:00:00             20# --  again in 24h0m0s
`,
	"5 failed cards a day per device": `
  Nov 21 22:00:00             ###
  Nov 21 22:00:00, no failure #########
  Nov 21 23:00:00             ##
  Nov 21 23:00:00, no failure -  again in 23h0m0s
  Nov 22 22:00:00             ###-  again in 1h0m0s
`,
	"1 risky message a day": `
  Nov 21 23:00:00             #-  again in 24h0m0s
  Nov 22 01:00:00             -  again in 22h0m0s
  Nov 22 23:00:00             #-  again in 24h0m0s
`,
	"10 failed logins, one more each hour": `
  Nov 21 00:00:00             ##########--  again in 1h0m0s
  Nov 21 01:00:00             #-  again in 1h0m0s
  Nov 21 04:00:00             ###-  again in 1h0m0s
  Nov 21 04:00:00, no failure -  again in 1h0m0s
`,
	"100 a minute and 10 % more": `
  Nov 21 00:00:00             100# ++++++++++--  again in 545ms
  Nov 21 00:00:30             50# +++++--  again in 545ms
`,
	"100 a minute and what others leave": `
  Nov 21 09:00:00             100#  50+
  Nov 21 13:00:00             100#  50-  again in 600ms
`,
	"5 a minute and 2 a second": `
  Nov 21 00:00:00             ##-  again in 1s
  Nov 21 00:00:01             ##-  again in 1s
  Nov 21 00:00:02             #--  again in 58s
  Nov 21 00:01:00             ##-  again in 1s
`,
	"200 of cost a day, refilled 50 a day": `
  Nov 21 00:00:00, 60 each    ###-  again in 19h12m0s
  Nov 21 10:00:00, 20 each    ##
  Nov 22 10:00:00, 50 each    #-  again in 23h36m0s
  Dec 1 00:00:00, 201 each    --  never
`,
	"15 a second": `
  Nov 21 00:00:00             15# --  again in 67ms
  Nov 21 00:00:00.4           ######-  again in 67ms
  Nov 21 00:00:09             15# --  again in 67ms
`,
	"1 post a second": `
  Nov 21 00:00:00             #-  again in 1s
  Nov 21 00:00:00.5           -  again in 500ms
  Nov 21 00:00:01             #-  again in 1s
`,
	"150 friends a day": `
  Nov 21 22:00:00             150# --  again in 2h9m36s
  Nov 22 12:00:00             75# ---  again in 9m36s
`,
}

func TestPolicies_decide(t *testing.T) {
	require.Len(t, scenarios, len(wantDecisions))
	for _, s := range scenarios {
		t.Run(s.policy, func(t *testing.T) {
			var out strings.Builder
			require.NoError(t, s.run(&out))
			require.Equal(t, s.policy+wantDecisions[s.policy], out.String())
		})
	}
}

// Every limit of the file has a scenario, and every scenario has a limit.
func TestPolicies_areAllShown(t *testing.T) {
	set, err := load()
	require.NoError(t, err)
	var inFile, shown []string
	for _, l := range set.All() {
		inFile = append(inFile, l.Policy())
	}
	for _, s := range scenarios {
		shown = append(shown, policies(t, set, s)...)
	}
	require.ElementsMatch(t, inFile, shown)
}

// policies returns the names of the limits that the requests of s must pass.
func policies(t *testing.T, set *rules.Set, s scenario) (names []string) {
	r := httptest.NewRequest(s.method, s.path, http.NoBody)
	r.Header.Set("X-User", "bob")
	r.Header.Set("X-Device", "tablet")
	var ticket queue.Ticket
	set.Limits(r, &ticket)
	d, err := ticket.Reserve(t.Context(), midnight)
	require.NoError(t, err)
	require.True(t, d.OK)
	for i := range ticket.Demands {
		if d, ok := ticket.Decision(i); ok {
			names = append(names, d.Policy)
		}
	}
	return names
}
