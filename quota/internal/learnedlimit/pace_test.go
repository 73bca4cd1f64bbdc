package learnedlimit

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// accept applies accepted requests with these times between them, the first of which follows one at now. It returns
// when the last one is accepted.
func (p *Pace) accept(now time.Time, times ...time.Duration) time.Time {
	p.Accepted(now)
	for _, d := range times {
		now = now.Add(d)
		p.Accepted(now)
	}
	return now
}

// Even times between accepted requests show a rate, and random ones do not.
func TestPace_rate(t *testing.T) {
	const (
		ms = time.Millisecond
		s  = time.Second
	)
	each := slices.Repeat[[]time.Duration]
	random := []time.Duration{9 * ms, 128 * ms, 3 * ms, 44 * ms, 71 * ms, 2 * ms, 17 * ms, 180 * ms, 33 * ms, 6 * ms, 62 * ms, 25 * ms, 1 * ms, 95 * ms, 14 * ms, 110 * ms}
	for name, tt := range map[string]struct {
		times []time.Duration // between accepted requests
		rate  float64         // per second; 0: none is shown
	}{
		"none":                        {nil, 0},
		"one":                         {[]time.Duration{50 * ms}, 0},
		"too few":                     {each([]time.Duration{50 * ms}, 15), 0},
		"enough":                      {each([]time.Duration{50 * ms}, 16), 20},
		"many":                        {each([]time.Duration{50 * ms}, 1000), 20},
		"fast":                        {each([]time.Duration{ms}, 16), 1000},
		"slow":                        {each([]time.Duration{time.Minute}, 16), 1. / 60},
		"little jitter":               {each([]time.Duration{40 * ms, 60 * ms}, 8), 20},
		"jitter of nearly a half":     {each([]time.Duration{26 * ms, 74 * ms}, 8), 20},
		"jitter of a half":            {each([]time.Duration{s / 4, 3 * s / 4}, 8), 2},
		"more jitter":                 {each([]time.Duration{24 * ms, 76 * ms}, 8), 0},
		"random":                      {random, 0},
		"random, many":                {each(random, 20), 0},
		"pairs":                       {each([]time.Duration{0, 100 * ms}, 50), 0},
		"bursts of 10":                {each(append(each([]time.Duration{0}, 9), s), 20), 0},
		"one of them is missing":      {append(each([]time.Duration{50 * ms}, 15), 100*ms), 1 / .053125},
		"all together":                {each([]time.Duration{0}, 100), 0},
		"after a pause":               {append(each([]time.Duration{50 * ms}, 100), 10*s), 0},
		"long after a pause":          {slices.Concat(each([]time.Duration{50 * ms}, 100), []time.Duration{s}, each([]time.Duration{50 * ms}, 300)), 20},
		"random, then even":           {slices.Concat(each(random, 20), each([]time.Duration{50 * ms}, 300)), 20},
		"even, then random":           {slices.Concat(each([]time.Duration{50 * ms}, 300), each(random, 5)), 0},
		"another rate":                {slices.Concat(each([]time.Duration{50 * ms}, 300), each([]time.Duration{100 * ms}, 300)), 10},
		"the clock is set back":       {each([]time.Duration{-50 * ms}, 100), 0},
		"even times between outliers": {each(append(each([]time.Duration{50 * ms}, 30), 2*s), 4), 0},
	} {
		var p Pace
		p.accept(time.Unix(1000, 0), tt.times...)
		require.InDelta(t, tt.rate, p.Rate(), 1e-6*tt.rate+1e-12, name)
	}
	require.Zero(t, new(Pace).Rate())
}

// paceOf returns the rate that times show. The weight of each is 1, and each one after the 16th multiplies the weights
// of those before it by 15/16. It also returns how far the deviation is from the highest one, as a part of the mean.
func paceOf(times []float64) (rate, margin float64) {
	const enough, most = 16, .5
	if len(times) < enough {
		return 0, 1
	}
	weights, sum, mean, squares := make([]float64, len(times)), 0., 0., 0.
	for i, x := range times {
		weights[i] = math.Pow(1-1./enough, float64(len(times)-max(i+1, enough)))
		sum += weights[i]
		mean += weights[i] * x
	}
	mean /= sum
	for i, x := range times {
		squares += weights[i] * (x - mean) * (x - mean)
	}
	deviation := math.Sqrt(squares/sum) / mean
	if deviation > most {
		return 0, deviation - most
	}
	return 1 / mean, most - deviation
}

// At each moment a Pace shows what the weighted mean and deviation of all times show.
func TestPace_randomTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	compared, found := 0, 0
	for range 100 {
		var p Pace
		now := time.Unix(1000, 0)
		p.Accepted(now)
		mean, jitter, exponential := math.Exp(random.NormFloat64()-3), random.Float64()*1.2, random.IntN(4) == 0
		var times []float64
		for range 10 + random.IntN(150) {
			if random.IntN(60) == 0 {
				mean *= .5 + 1.5*random.Float64()
			}
			x := mean * max(1+jitter*random.NormFloat64(), 0)
			if exponential {
				x = mean * random.ExpFloat64()
			}
			d := time.Duration(x * 1e9)
			now, times = now.Add(d), append(times, d.Seconds())
			p.Accepted(now)
			want, margin := paceOf(times)
			if margin < 1e-6 {
				continue // rounding decides
			}
			require.InDelta(t, want, p.Rate(), 1e-6*want, "%v", times)
			compared++
			if want > 0 {
				found++
			}
		}
	}
	require.Greater(t, found, compared/5)
	require.Less(t, found, compared*4/5)
}

// A server that accepts a request in each interval and is sent a few times as many shows its rate. One that fails most
// requests at random seldom shows any.
func TestPace_showsALimit(t *testing.T) {
	const limit = 20.
	random := rand.New(rand.NewPCG(3, 4))
	for _, demand := range []float64{2, 3, 5, 20} { // times the limit
		for _, limited := range []bool{true, false} {
			var p Pace
			at, last, accepted, found := 0., 0., 0, 0 // seconds, requests
			for accepted < 5000 {
				at += random.ExpFloat64() / (limit * demand)
				if limited && at < last+1/limit || !limited && random.Float64() > 1/demand {
					continue
				}
				last, accepted = at, accepted+1
				p.Accepted(time.Unix(1000, 0).Add(time.Duration(at * 1e9)))
				if rate := p.Rate(); rate > 0 {
					found++
					if limited {
						require.InEpsilon(t, limit*demand/(demand+1), rate, .35, "%v times the limit", demand)
					}
				}
			}
			if limited {
				require.Greater(t, found, accepted*19/20, "%v times the limit", demand)
			} else {
				require.Less(t, found, accepted/50, "%v times the limit", demand)
			}
		}
	}
}
