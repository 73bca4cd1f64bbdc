package rules_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
)

const tightFile = `
domain: api
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 60, unit: minute}
  - key: country
    rate_limit: {requests_per_unit: 1000000, unit: minute}
  - key: plan
    shadow_mode: true
    rate_limit: {requests_per_unit: 60, unit: minute, algorithm: token_bucket}
`

func parsed(t *testing.T, text string, s rules.Setting) *rules.Set {
	set, err := rules.Parse([]byte(text), s)
	require.NoError(t, err)
	return set
}

// askEvenly asks for one user so often.
func askEvenly(t *testing.T, set *rules.Set, n int, every time.Duration) {
	for i := range n {
		var ticket throttle.Ticket
		set.Add(&ticket, entries("user", "ann"), entries("country", "at"), entries("plan", "free"))
		now := hour.Add(time.Duration(i) * every)
		d, err := ticket.Reserve(context.Background(), now)
		require.NoError(t, err)
		if d.OK {
			ticket.Observe(context.Background(), throttle.Feedback{Now: now, Outcome: throttle.Failed})
		}
	}
}

func advices(g *rules.Ledger, set *rules.Set) (all []string) {
	for _, l := range set.All() {
		all = append(all, l.Policy()+": "+g.Advise(l).String())
	}
	return all
}

func TestLedger_judgesEachLimitOfAFile(t *testing.T) {
	g := &rules.Ledger{}
	set := parsed(t, tightFile, rules.Setting{Witness: g, Clock: still(hour)})
	askEvenly(t, set, 9000, time.Minute/90)
	all := strings.Join(advices(g, set), "\n")
	require.Equal(t, `api/user: Relax to 96 per 1m0s: 33.3 % of all claims were refused, of those who want no more than that.
api/country: Leave it: it refuses 0.0 % of all claims.
api/plan: Leave it: it refuses 0.0 % of all claims.`, all)
}

// What a limit counted goes on when its file has changed elsewhere, and begins anew when
// it allows another amount.
func TestLedger_goesOnWithWhatStaysTheSame(t *testing.T) {
	g := &rules.Ledger{}
	s := rules.Setting{Witness: g, Clock: still(hour)}
	set := parsed(t, tightFile, s)
	askEvenly(t, set, 100, time.Millisecond)
	user, country := set.All()[0], set.All()[1]
	require.EqualValues(t, 40, g.Tally(user).Snapshot().Refused)

	changed := parsed(t, strings.Replace(tightFile, "1000000", "2000000", 1), s)
	require.Same(t, g.Tally(user), g.Tally(changed.All()[0]))
	require.NotSame(t, g.Tally(country), g.Tally(changed.All()[1]))

	was := g.Tally(user)
	g.Keep(changed)
	require.Same(t, was, g.Tally(changed.All()[0]))
	require.Zero(t, g.Tally(country).Snapshot().Asked(), "it is not in the file any more")
}

func TestLedger_ringsOncePerLimitAndKey(t *testing.T) {
	var rang []string
	g := &rules.Ledger{Alarm: func(l *rules.Limit) *rules.Alarm {
		if l.Policy() == "api/country" {
			return nil
		}
		return &rules.Alarm{Threshold: throttle.PerMinute(30), Ring: func(e rules.Episode) {
			rang = append(rang, fmt.Sprintf("%s %s: %d+%d", l.Policy(), e.Key, e.Refused, e.Failed))
		}}
	}}
	askEvenly(t, parsed(t, tightFile, rules.Setting{Witness: g, Clock: still(hour)}), 100, time.Millisecond)
	require.Equal(t, []string{"api/user ann: 0+31", "api/plan free: 0+31"}, rang)
}

func TestLedger_doesNotAllocate(t *testing.T) {
	g := &rules.Ledger{}
	l := &rules.Limit{Place: "api/user", Spec: throttle.PerMinute(60)}
	c, d := throttle.Claim{Key: "ann"}, throttle.Decision{OK: true, At: hour}
	require.Zero(t, testing.AllocsPerRun(200, func() {
		g.Decided(l, c, d)
		g.Observed(t.Context(), l, c, d, throttle.Feedback{})
		g.Cancelled(l, c, d)
	}))
}
