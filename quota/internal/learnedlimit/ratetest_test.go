package learnedlimit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// outcomes adds responses, x rejected and . accepted, each after interval, and returns the rate that the last one shows.
func (t *RateTest) outcomes(responses string, interval, trip time.Duration) (rate float64) {
	now := time.Unix(1000, 0)
	for i, r := range responses {
		n := uint64(i + 1)
		rate = t.Measure(n, n, r == 'x', trip, now)
		now = now.Add(interval)
	}
	return rate
}

// Responses to requests that were sent before the first rejection arrived do not count: a server accepts a burst.
func TestRateTest_whatWasSentBefore(t *testing.T) {
	var test RateTest
	now := time.Unix(1000, 0)
	test.Measure(1, 40, true, time.Millisecond, now)
	for n := range uint64(39) {
		require.Zero(t, test.Measure(n+2, 99, n%2 == 0, time.Millisecond, now.Add(time.Second/2)))
	}
	require.Equal(t, []int{0, 0}, []int{test.accepted, test.rejected})
}

// A rate is shown when a fifth of at least 16 responses since the first rejection, and at least 6, are rejections, and
// 8 were accepted, over at least two round trips; and when a fifth of 16 more are rejections.
func TestRateTest_measure(t *testing.T) {
	const ms, half, again = time.Millisecond, "xx.x.x.x.x.x.x.x.x", ".x.x.x.x.x.x.x.x"
	for name, tt := range map[string]struct {
		responses      string
		interval, trip time.Duration
		want           float64
	}{
		"none":                        {"", ms, ms, 0},
		"half":                        {half + again, 100 * ms, ms, 16 / 3.3},
		"half, once":                  {half, 100 * ms, ms, 0},
		"too few again":               {half + again[2:], 100 * ms, ms, 0},
		"less than a fifth again":     {half + "....x....x.....x", 100 * ms, ms, 0},
		"a fifth again":               {half + ".x...x....x....x", 100 * ms, ms, 20 / 3.3},
		"all rejected again":          {half + "xxxxxxxxxxxxxxxx", 100 * ms, ms, 8 / 3.3},
		"it begins anew":              {half + "....x....x.....x" + again + again, 100 * ms, ms, 0},
		"too few responses":           {half[:17] + again, 100 * ms, ms, 0},
		"too few accepted":            {"xxx.xx.xx.xx.xx.xx.xx.x", 100 * ms, ms, 0},
		"too few rejected":            {"xx....x....x...x" + again[:15], 100 * ms, ms, 0},
		"a fifth":                     {"xx....x....x...x...x....x" + again, 100 * ms, ms, 26 / 4.0},
		"less than a fifth":           {"xx......x......x......x......x......x" + again[:15], 100 * ms, ms, 0},
		"the latest is accepted":      {half + again + ".", 100 * ms, ms, 0},
		"accepted before":             {"...................." + half + again, 100 * ms, ms, 16 / 3.3},
		"less than two round trips":   {half, 100 * ms, time.Second, 0},
		"an idle time before each":    {half + again, 1001 * ms, ms, 0},
		"long round trips, no idling": {half + again, 1500 * ms, time.Second, 16 / 49.5},
	} {
		var test RateTest
		require.InDelta(t, tt.want, test.outcomes(tt.responses, tt.interval, tt.trip), 1e-9, name)
		require.False(t, test.share > 0, name)
	}
}

// Where some requests are always rejected, in a share below a fifth, hardly any rate is put on test: that a fifth are
// rejected once is chance.
func TestRateTest_chanceShowsNoRate(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for share, most := range map[float64]int{.03: 0, .07: 2, .1: 30} {
		shown := 0
		for range 20 {
			var test RateTest
			now := time.Unix(1000, 0)
			for n := range uint64(10_000) {
				if now = now.Add(50 * time.Millisecond); test.Measure(n+1, n+1, random.Float64() < share, time.Millisecond, now) > 0 {
					shown++
					test = RateTest{}
				}
			}
		}
		require.LessOrEqual(t, shown, most, share)
	}
}

// If rejections are as frequent as before, the test ends after few responses and finds that they do not depend on the
// rate; if hardly any request is rejected, that they do. Errors are as rare as the thresholds say (Wald): e^-3 and e^-2.2.
func TestRateTest_judge(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, share := range []float64{.2, .3, .5, .7, .9} {
		for _, limited := range []bool{true, false} {
			const runs = 4000
			wrong, responses, longest := 0, 0, 0
			for range runs {
				test := RateTest{share: share}
				p := share
				if limited {
					p /= rarer
				}
				depends, over, n := false, false, 0
				for ; !over; n++ {
					var independent bool
					depends, independent = test.Judge(random.Float64() < p)
					over = depends || independent
				}
				require.Equal(t, depends, test.share > 0)
				if depends != limited {
					wrong++
				}
				responses, longest = responses+n, max(longest, n)
			}
			require.Less(t, float64(wrong)/runs, map[bool]float64{true: math.Exp(independsAt), false: math.Exp(-dependsAt)}[limited]*1.3, "share %v, %v", share, limited)
			require.Less(t, responses/runs, 25, "share %v, %v", share, limited)
			require.Less(t, longest, 200)
		}
	}
}

// The share that a test begins with is that of the measured responses, and never 1: then no response could decide.
func TestRateTest_begin(t *testing.T) {
	test := RateTest{accepted: 12, rejected: 4}
	test.Begin()
	require.Equal(t, RateTest{share: .25}, test)
	test = RateTest{rejected: 40}
	test.Begin()
	require.Equal(t, RateTest{share: .95}, test)
}

// A rate at which hardly anything is rejected is kept for as long as that is so, and dropped within some responses when
// half of the requests are rejected at it at random. Several rejections in a row count once.
func TestRateTest_goesOn(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, share := range []float64{.2, .5} {
		kept, longest := 0, 0
		for range 200 {
			test := RateTest{}
			test.BeginConfirmed(share)
			require.False(t, test.Testing())
			independent := false
			for range 2000 {
				_, wrong := test.Judge(random.Float64() < .05)
				independent = independent || wrong
			}
			if independent {
				continue
			}
			kept++
			n := 0
			for ; !independent && n < 1000; n++ {
				var depends bool
				depends, independent = test.Judge(random.Float64() < .5)
				require.False(t, depends, "it is known already")
			}
			longest = max(longest, n)
		}
		require.Greater(t, kept, 180, share)
		require.Less(t, longest, 300, share)
	}
	test := RateTest{}
	test.BeginConfirmed(.5)
	for range 100 {
		_, independent := test.Judge(true)
		require.False(t, independent, "a window that is used up rejects all")
	}
	test = RateTest{}
	_, independent := test.Judge(true)
	require.False(t, independent, "there is no rate")
}
