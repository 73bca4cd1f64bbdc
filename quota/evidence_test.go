package quota

import (
	"strings"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// evidenceOf returns the evidence of a quota after before responses and those in text, one in each
// interval: g is a success, r a bare 429, u a 503 and n a 500. The last one arrives at the returned
// time.
func evidenceOf(text string, before int, every time.Duration) (*evidence, time.Time) {
	ev, now := &evidence{total: before}, time.Unix(1_700_000_000, 0)
	for i, c := range text {
		if i > 0 {
			now = now.Add(every)
		}
		ev.add(map[rune]throttle.Cause{'g': causeSuccess, 'r': throttle.CauseUnstated, 'u': throttle.CauseUnavailable, 'n': causeOther}[c], now)
	}
	return ev, now
}

// Bare rejections imply a limit if they are a large enough share of the latest responses.
func TestEvidence_impliesALimit(t *testing.T) {
	const rtt = 50 * time.Millisecond
	for name, tt := range map[string]struct {
		text     string
		before   int // responses before these
		every    time.Duration
		later    time.Duration // from the last response to the question
		retryNow bool
		want     bool
	}{
		"5 of 8":                            {text: "ggggrrrrr", before: 100, every: time.Second, want: true},
		"5 of 8, mixed":                     {text: "rgrgrrrg", before: 100, every: time.Second, want: true},
		"4 of 8":                            {text: "gggggrrrr", before: 100, every: time.Second},
		"5 of 9":                            {text: "rrrrggggr", before: 100, every: time.Second},
		"4 of 6 among the first 20":         {text: "ggrrrr", every: time.Second, want: true},
		"3 of 6 among the first 20":         {text: "gggrrr", every: time.Second},
		"4 of 6, to be repeated now":        {text: "ggrrrr", every: time.Second, retryNow: true},
		"4 of 6, not among the first 20":    {text: "ggrrrr", before: 20, every: time.Second},
		"too old":                           {text: "rrrrr", before: 100, every: time.Second, later: 11 * time.Second},
		"one of them too old":               {text: "rrrrr", before: 100, every: time.Second, later: 7 * time.Second},
		"a third of a round trip":           {text: strings.Repeat("g", 10) + "rrrrr", before: 100, every: time.Millisecond, want: true},
		"less than a third of a round trip": {text: strings.Repeat("g", 11) + "rrrrr", before: 100, every: time.Millisecond},
		"503s are another cause":            {text: "uuuuuuuu", before: 100, every: time.Second},
		"after a time without requests":     {text: "rrrr", before: 100, every: time.Millisecond, later: time.Minute},
	} {
		ev, now := evidenceOf(tt.text, tt.before, tt.every)
		require.Equal(t, tt.want, ev.impliesLimit(tt.retryNow, rtt, now.Add(tt.later)), name)
	}
}

// Failures of one cause suggest a limit if they are a large enough share of the latest responses, and
// the server was healthy before.
func TestEvidence_suggestsALimit(t *testing.T) {
	const rtt = 50 * time.Millisecond
	good := strings.Repeat("g", 20)
	for name, tt := range map[string]struct {
		text   string
		before int
		every  time.Duration
		share  float64 // 0: no evidence
	}{
		"6 of 10":                           {text: good + "gggguuuuuu", before: 100, every: time.Second / 10, share: .6},
		"5 of 10":                           {text: good + "ggggguuuuu", before: 100, every: time.Second / 10},
		"15 of 50":                          {text: good + strings.Repeat("gugug", 6) + strings.Repeat("ggugg", 3) + "ggggg", before: 100, every: time.Second / 10, share: .3},
		"14 of 50":                          {text: good + strings.Repeat("gugug", 6) + strings.Repeat("ggugg", 2) + "gggggggggg", before: 100, every: time.Second / 10},
		"a server that did not work before": {text: strings.Repeat("n", 3) + strings.Repeat("g", 17) + "gggguuuuuu", before: 100, every: time.Second / 10, share: .6},
		"nor for long":                      {text: strings.Repeat("gn", 10) + "nnnnuuuuuu", before: 100, every: time.Second / 10},
		"18 of 20 before":                   {text: "nn" + strings.Repeat("g", 18) + "uuuuuugggg", before: 100, every: time.Second / 10, share: .6},
		"17 of 20 before":                   {text: "nnn" + strings.Repeat("g", 17) + "uuuuuugggg", before: 100, every: time.Second / 10},
		"never":                             {text: "uuuuuuuuuu", before: 100, every: time.Second / 10},
		"a new host, one success":           {text: "guuuuuu", every: time.Second / 10, share: 6. / 7},
		"a new host, none":                  {text: "uuuuuuu", every: time.Second / 10},
		"a quarter of a round trip":         {text: strings.Repeat("g", 18) + "uuuuuu", before: 100, every: time.Millisecond, share: .6},
		"less of a round trip":              {text: strings.Repeat("g", 19) + "uuuuuu", before: 100, every: time.Millisecond},
		"too old":                           {text: good + "uuuuuu", before: 100, every: 3 * time.Second},
		"rejections are another cause":      {text: good + "rrrrrrrr", before: 100, every: time.Second / 10},
	} {
		ev, now := evidenceOf(tt.text, tt.before, tt.every)
		share, ok := ev.suggestsLimit(throttle.CauseUnavailable, rtt, now)
		require.Equal(t, tt.share > 0, ok, name)
		if ok {
			require.InDelta(t, tt.share, share, .001, name)
		}
	}
}

// The highest rate is that of five seconds of the last minute, the latest that of the last five.
func TestAcceptedRate_highestAndLatest(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var a acceptedRate
	for i := range 100 {
		n := int64(10)
		if 50 <= i && i < 55 {
			n = 40
		}
		a.add(n, now.Add(time.Duration(i)*time.Second))
	}
	last := now.Add(99 * time.Second)
	require.InDelta(t, 40, a.highest(last), .01)
	require.InDelta(t, 10, a.latest(last.Add(time.Second)), .01)
	require.InDelta(t, 10, a.highest(last.Add(20*time.Second)), .01, "it was more than a minute ago")
	require.Zero(t, a.highest(last.Add(time.Hour)))

	var b acceptedRate
	b.addEvenly(200, 10*time.Second, now)
	require.InDelta(t, 18, b.highest(now), 2)
	b = acceptedRate{}
	b.addEvenly(20, 0, now)
	require.InDelta(t, 4, b.highest(now), .01, "20 in the only second of five")
	require.InDelta(t, 20, b.latest(now), .01)
}

// Rejections that state a wait imply a limit if several of the latest responses are such.
func TestEvidence_statedRejectionsImplyALimit(t *testing.T) {
	for name, tt := range map[string]struct {
		text   string
		before int
		want   bool
	}{
		"5 of 16, in any order":       {text: "rgggrggrgggrgggr", before: 100, want: true},
		"4 of 16":                     {text: "rgggrggrggggrggg", before: 100},
		"5 of 17":                     {text: "rrgggrggrgggrgggg", before: 100},
		"3 of 8 of the first 30":      {text: "grgrgrgg", before: 20, want: true},
		"2 of 8 of the first 30":      {text: "ggrgrggg", before: 20},
		"3 of 8, not of the first 30": {text: "grgrgrgg", before: 30},
	} {
		ev, now := evidenceOf(tt.text, tt.before, time.Second/10)
		require.Equal(t, tt.want, ev.statedImplyLimit(now), name)
	}
}

// What was accepted before the evidence begins fills at most half of it.
func TestEvidence_addsOldSuccessesBeforeRejections(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for n, want := range map[int64]int{0: 0, 7: 7, maxEvidence / 2: maxEvidence / 2, 10 * maxEvidence: maxEvidence / 2} {
		var ev evidence
		ev.addAccepted(n, time.Second, now)
		require.Equal(t, want, ev.len(), "%d accepted", n)
		require.EqualValues(t, min(n, 1000), ev.total, "%d accepted", n)
	}
}

// Requests that are spread over a time are counted evenly, and those of more than a minute ago are
// left out.
func TestAcceptedRate_spreadsWhatWasAcceptedBefore(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		n       int64
		span    time.Duration
		highest float64
		all     int
	}{
		"in a moment":        {100, 0, 20, 100},
		"in 10 s":            {100, 9500 * time.Millisecond, 10, 100},
		"in 10 s, and a few": {103, 9500 * time.Millisecond, 10.6, 103},
		"in a minute":        {600, 59 * time.Second, 10, 600},
		"in 100 s":           {1000, 99 * time.Second, 10, 600},
		"nothing":            {0, time.Minute, 0, 0},
	} {
		var a acceptedRate
		a.addEvenly(tt.n, tt.span, now)
		all := 0
		for _, n := range a.counts {
			all += int(n)
		}
		require.Equal(t, tt.all, all, name)
		require.InDelta(t, tt.highest, a.highest(now), 1e-9, name)
	}
}
