package learnedlimit

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// evidenceOf returns the evidence of a quota after before responses and those in text, one in each
// interval: g is a success, r a bare 429, u a 503 and n a 500. The last one arrives at the returned
// time.
func evidenceOf(text string, before int, every time.Duration) (*Evidence, time.Time) {
	ev, now := &Evidence{Total: before}, time.Unix(1_700_000_000, 0)
	for i, c := range text {
		if i > 0 {
			now = now.Add(every)
		}
		ev.Add(map[rune]throttle.Cause{'g': CauseSuccess, 'r': throttle.CauseUnstated, 'u': throttle.CauseUnavailable, 'n': causeOther}[c], now)
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
		require.Equal(t, tt.want, ev.ImpliesLimit(tt.retryNow, rtt, now.Add(tt.later)), name)
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
		"a new host, a success after it":    {text: "ugguuuuu", every: time.Second / 10, share: 6. / 8},
		"a new host, none":                  {text: "uuuuuuu", every: time.Second / 10},
		"a quarter of a round trip":         {text: strings.Repeat("g", 18) + "uuuuuu", before: 100, every: time.Millisecond, share: .6},
		"less of a round trip":              {text: strings.Repeat("g", 19) + "uuuuuu", before: 100, every: time.Millisecond},
		"too old":                           {text: good + "uuuuuu", before: 100, every: 3 * time.Second},
		"rejections are another cause":      {text: good + "rrrrrrrr", before: 100, every: time.Second / 10},
	} {
		ev, now := evidenceOf(tt.text, tt.before, tt.every)
		share, ok := ev.SuggestsLimit(throttle.CauseUnavailable, rtt, now)
		require.Equal(t, tt.share > 0, ok, name)
		if ok {
			require.InDelta(t, tt.share, share, .001, name)
		}
	}
}

// The highest rate is that of five seconds of the last minute, the latest that of the last five.
func TestAcceptedRate_highestAndLatest(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var a AcceptedRate
	for i := range 100 {
		n := int64(10)
		if 50 <= i && i < 55 {
			n = 40
		}
		a.Add(n, now.Add(time.Duration(i)*time.Second))
	}
	last := now.Add(99 * time.Second)
	require.InDelta(t, 40, a.Highest(last), .01)
	require.InDelta(t, 10, a.Latest(last.Add(time.Second)), .01)
	require.InDelta(t, 10, a.Highest(last.Add(20*time.Second)), .01, "it was more than a minute ago")
	require.Zero(t, a.Highest(last.Add(time.Hour)))

	var b AcceptedRate
	b.AddEvenly(200, 10*time.Second, now)
	require.InDelta(t, 18, b.Highest(now), 2)
	b = AcceptedRate{}
	b.AddEvenly(20, 0, now)
	require.InDelta(t, 4, b.Highest(now), .01, "20 in the only second of five")
	require.InDelta(t, 20, b.Latest(now), .01)
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
		require.Equal(t, tt.want, ev.StatedImplyLimit(now), name)
	}
}

// What was accepted before the evidence begins fills at most half of it.
func TestEvidence_addsOldSuccessesBeforeRejections(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for n, want := range map[int64]int{0: 0, 7: 7, maxEvidence / 2: maxEvidence / 2, 10 * maxEvidence: maxEvidence / 2} {
		var ev Evidence
		ev.AddAccepted(n, time.Second, now)
		require.Equal(t, want, ev.len(), "%d accepted", n)
		require.EqualValues(t, min(n, 1000), ev.Total, "%d accepted", n)
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
		var a AcceptedRate
		a.AddEvenly(tt.n, tt.span, now)
		all := 0
		for _, n := range a.counts {
			all += int(n)
		}
		require.Equal(t, tt.all, all, name)
		require.InDelta(t, tt.highest, a.Highest(now), 1e-9, name)
	}
}

// A rejection counts for ten seconds.
func TestEvidence_isTenSecondsOld(t *testing.T) {
	ev, now := evidenceOf("rrrrr", 100, 0)
	for age, want := range map[time.Duration]int{0: 5, 9999 * time.Millisecond: 5, 10001 * time.Millisecond: 0} {
		n, all := ev.Count(throttle.CauseUnstated, 8, now.Add(age))
		require.Equal(t, want, n, "%v", age)
		require.Equal(t, 5, all)
	}
}

// After twenty seconds without a response all earlier ones are dropped, so that none seems new when the
// counter of ticks begins again.
func TestEvidence_isDroppedAfterTwentySeconds(t *testing.T) {
	for gap, want := range map[time.Duration]int{20 * time.Second: 6, 20*time.Second + 1: 1, (1 << 32) << 16: 1} {
		ev, now := evidenceOf("rrrrr", 100, 0)
		ev.Add(throttle.CauseUnstated, now.Add(gap))
		require.Equal(t, want, ev.len(), "%v", gap)
		require.Equal(t, 106, ev.Total)
	}
	ev, now := evidenceOf("r", 0, 0)
	ev.Add(CauseSuccess, now.Add(-time.Second))
	require.Equal(t, now, ev.last, "responses are added in any order")
}

// The ring holds 100 responses, of which the newest is the first.
func TestEvidence_ring(t *testing.T) {
	ev, now := evidenceOf("r"+strings.Repeat("g", 99), 0, time.Millisecond)
	kind, age := ev.at(99, tick(now))
	require.Equal(t, throttle.CauseUnstated, kind)
	require.Equal(t, tick(now)-tick(now.Add(-99*time.Millisecond)), age)
	require.Equal(t, 100, ev.len())
	ev.Add(throttle.CauseUnavailable, now)
	require.Equal(t, 100, ev.len())
	kind, _ = ev.at(0, tick(now))
	require.Equal(t, throttle.CauseUnavailable, kind)
	kind, _ = ev.at(99, tick(now))
	require.Equal(t, CauseSuccess, kind)
	ev.Restart()
	require.Zero(t, ev.len())
	require.Equal(t, 101, ev.Total, "all responses of the quota")
}

// What was accepted before was sent evenly over a time that ends now.
func TestEvidence_spreadsWhatWasAcceptedBefore(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var ev Evidence
	ev.AddAccepted(4, 5*time.Second, now)
	for i, want := range []time.Duration{1, 2, 3, 4} {
		kind, age := ev.at(i, tick(now))
		require.Equal(t, CauseSuccess, kind)
		require.Equal(t, tick(now)-tick(now.Add(-want*time.Second)), age, "%d", i)
	}
}

// Responses of the last round trip are those that are younger, and those of the present tick.
func TestEvidence_roundTrip(t *testing.T) {
	ev, now := evidenceOf("rgrgr", 0, 10*time.Millisecond)
	for rtt, want := range map[time.Duration][2]int{
		0: {1, 1}, 5 * time.Millisecond: {1, 1}, 15 * time.Millisecond: {1, 2}, 25 * time.Millisecond: {2, 3}, time.Minute: {3, 5},
	} {
		rejected, all := ev.countRoundTrip(throttle.CauseUnstated, rtt, now)
		require.Equal(t, want, [2]int{rejected, all}, "%v", rtt)
	}
}

// The first 20 responses of a quota are those until the twentieth, which does not belong to them.
func TestEvidence_firstResponses(t *testing.T) {
	for before, want := range map[int]bool{13: true, 14: false} {
		ev, now := evidenceOf("ggrrrr", before, time.Second)
		require.Equal(t, want, ev.ImpliesLimit(false, time.Second, now), "%d before", before)
		ev, now = evidenceOf("guuuuuu", before-1, time.Second/10)
		ev.causes[0] = causeOther
		_, ok := ev.SuggestsLimit(throttle.CauseUnavailable, time.Millisecond, now)
		require.False(t, ok, "%d before: no success", before)
	}
	for before, want := range map[int]bool{22: true, 23: false} {
		ev, now := evidenceOf("grgrgrgg", before, time.Second)
		require.Equal(t, want, ev.StatedImplyLimit(now), "%d before", before)
	}
}

// The rate is that of whole seconds: a count is in the highest rate for 61 seconds, and in the latest
// for 5.
func TestAcceptedRate_secondsThatCount(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for after, want := range map[int]float64{0: 2, 59: 2, 60: 2, 61: 0, 1000: 0} {
		var a AcceptedRate
		a.Add(10, now)
		require.InDelta(t, want, a.Highest(now.Add(time.Duration(after)*time.Second)), 1e-9, "%d s", after)
	}
	for after, want := range map[int]float64{0: 10, 1: 10, 5: 10, 6: 0, 7: 0} {
		var a AcceptedRate
		a.Add(10, now)
		require.InDelta(t, want, a.Latest(now.Add(time.Duration(after)*time.Second)), 1e-9, "%d s", after)
	}
	var a AcceptedRate
	for i, n := range []int64{10, 0, 30, 0, 0, 99} {
		a.Add(n, now.Add(time.Duration(i)*time.Second))
	}
	require.InDelta(t, 20, a.Latest(now.Add(5*time.Second)), 1e-9, "not the present second, and none in which nothing was accepted")
	a.Add(7, now.Add(3*time.Second))
	require.InDelta(t, 106, a.Latest(now.Add(8*time.Second)), 1e-9, "a count that arrives late is one of the newest second")
}

// Failures of a quarter of the responses of a round trip are evidence, where these are more than ten.
func TestEvidence_failuresOfARoundTrip(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		failed, all int // responses of the last round trip
		want        bool
	}{"ten": {2, 10, true}, "eleven": {2, 11, false}, "a quarter of twelve": {3, 12, true}, "of thirteen": {3, 13, false}} {
		var ev Evidence
		for range 20 {
			ev.Add(CauseSuccess, now.Add(-2*time.Second))
		}
		for i := range 50 - tt.all {
			kind := CauseSuccess
			if i < 16 {
				kind = throttle.CauseUnavailable
			}
			ev.Add(kind, now.Add(-time.Second))
		}
		for i := range tt.all {
			kind := CauseSuccess
			if i < tt.failed {
				kind = throttle.CauseUnavailable
			}
			ev.Add(kind, now)
		}
		_, ok := ev.SuggestsLimit(throttle.CauseUnavailable, 100*time.Millisecond, now)
		require.Equal(t, tt.want, ok, name)
	}
	for total, want := range map[int]bool{19: true, 20: false} {
		var ev Evidence
		ev.Total = total - 3
		ev.Add(throttle.CauseUnavailable, now)
		ev.Add(CauseSuccess, now)
		ev.Add(throttle.CauseUnavailable, now)
		require.Equal(t, want, ev.WasHealthy(throttle.CauseUnavailable, now), "one success suffices where there were fewer than 20: %d", total)
	}
}

// Seconds that count for the highest rate are those of the last minute, and none before 1970.
func TestAcceptedRate_countsEachSecondOnce(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var a AcceptedRate
	for _, ago := range []time.Duration{60, 59, 58, 57, 1, 0} {
		a.Add(10, now.Add(-ago*time.Second))
	}
	require.InDelta(t, 40./5, a.Highest(now), 1e-9, "the latest two and the oldest four are apart")
	require.InDelta(t, 30./5, a.Highest(now.Add(time.Second)), 1e-9)
	require.InDelta(t, 20./5, a.Highest(now.Add(3*time.Second)), 1e-9)
	require.Zero(t, a.Highest(now.Add(61*time.Second)))
	a = AcceptedRate{}
	for s := range int64(3) {
		a.Add(10, time.Unix(s, 0))
	}
	require.InDelta(t, 30./5, a.Highest(time.Unix(2, 0)), 1e-9)
	a.Add(10, time.Unix(0, 0))
	require.EqualValues(t, 2, a.second, "the clock was set back")
}

// A response is old after exactly ten seconds of ticks.
func TestEvidence_ageInTicks(t *testing.T) {
	at := func(ticks int64) time.Time { return time.Unix(0, ticks<<16) }
	var ev Evidence
	ev.Add(throttle.CauseUnstated, at(1000))
	for after, want := range map[int64]int{0: 1, int64(maxEvidenceTicks) - 1: 1, int64(maxEvidenceTicks): 0} {
		n, all := ev.Count(throttle.CauseUnstated, 8, at(1000+after))
		require.Equal(t, []int{want, 1}, []int{n, all}, after)
	}
	ev = Evidence{}
	for _, n := range []int64{999, 1} {
		ev.AddAccepted(n, time.Second, at(1000))
	}
	require.Equal(t, 1000, ev.Total)
	ev.AddAccepted(1001, time.Second, at(1000))
	require.Equal(t, 2000, ev.Total, "at most a thousand at a time")
}
