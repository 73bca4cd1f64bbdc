package concurrency

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	ms   = time.Millisecond
	trip = 20 * ms
)

var start = time.Unix(1000, 0)

// A server fails requests: a part of all, and of those that arrive while it processes capacity others.
type server struct {
	capacity   int
	beyond, of float64       // parts that fail
	from, to   time.Duration // when it fails requests
	failsAfter time.Duration // of a failure; a success takes trip
	noise      float64       // standard deviation of the logarithm of both
}

// A course is what happens to the requests that a server receives.
type course struct {
	limiter         AdaptiveLimiter
	pending         []response // in flight
	verdicts        [3]int
	limits          []int64 // of the limiter, in the last third of the time, after each response
	success, failed int     // then
	mostOpen        int
}

type response struct {
	at     time.Duration
	claim  uint64
	with   int64
	failed bool
}

// run sends requests of a number of workers: each sends the next one when it has a response and the limiter
// permits it.
func (s server) run(workers int, length time.Duration) *course {
	c := &course{}
	random := rand.New(rand.NewPCG(uint64(workers), uint64(s.capacity)))
	sent, waiting, now := uint64(0), workers, time.Duration(0)
	for now < length {
		for waiting > 0 && c.limiter.Check(int64(len(c.pending)), trip, start.Add(now)) {
			sent, waiting = sent+1, waiting-1
			c.pending = append(c.pending, s.respond(sent, now, c.pending, random))
		}
		c.mostOpen = max(c.mostOpen, len(c.pending))
		i := 0
		for k := range c.pending {
			if c.pending[k].at < c.pending[i].at {
				i = k
			}
		}
		r := c.pending[i]
		now = r.at
		v := c.limiter.Add(Outcome{Claim: r.claim, Failed: r.failed, With: r.with, Open: int64(len(c.pending)), Sent: sent, RoundTrip: trip}, start.Add(now))
		c.verdicts[v]++
		if now > length*2/3 {
			c.limits = append(c.limits, c.limiter.Limit())
			if r.failed {
				c.failed++
			} else {
				c.success++
			}
		}
		c.pending = slices.Delete(c.pending, i, i+1)
		waiting++
	}
	slices.Sort(c.limits)
	return c
}

// respond returns the response to a request that is sent now while others are in flight.
func (s server) respond(claim uint64, now time.Duration, others []response, random *rand.Rand) response {
	processed := 0
	for _, r := range others {
		if !r.failed {
			processed++
		}
	}
	r := response{claim: claim, with: int64(len(others)) + 1}
	if s.from <= now && now < s.to {
		r.failed = random.Float64() < s.of || processed >= s.capacity && random.Float64() < s.beyond
	}
	took := trip
	if r.failed {
		took = s.failsAfter
	}
	r.at = now + time.Duration(float64(took)*math.Exp(s.noise*random.NormFloat64()))
	return r
}

// Where half as many again are sent as a server can process, as many are in flight as it can process: its
// capacity is used, and few requests fail.
func TestAdaptiveLimiter_settlesNearTheCapacity(t *testing.T) {
	for _, capacity := range []int{8, 16, 32} {
		for _, beyond := range []float64{.5, 1} {
			for _, noise := range []float64{0, .5} {
				for _, failsAfter := range []time.Duration{trip, trip / 10} {
					s := server{capacity: capacity, beyond: beyond, failsAfter: failsAfter, noise: noise, to: time.Hour}
					c := s.run(capacity*3/2, 6*time.Second)
					median := float64(c.limits[len(c.limits)/2])
					require.InDelta(t, capacity, median, .25*float64(capacity), "%+v", s)
					require.Less(t, c.failed, c.success/5, "%+v", s)
					most := float64(capacity) * (6 * time.Second / 3 / trip).Seconds() * 1e9 / math.Exp(noise*noise/2)
					require.Greater(t, float64(c.success), .8*most, "%+v", s)
					require.Zero(t, c.verdicts[Independent], "%+v", s)
				}
			}
		}
	}
}

// Where failures do not depend on the number of requests in flight, the limiter finds that out and rests.
func TestAdaptiveLimiter_restsIfFailuresAreIndependent(t *testing.T) {
	for _, of := range []float64{.2, .3, .6, .9, 1} {
		for _, noise := range []float64{0, .5} {
			for _, workers := range []int{1, 2, 3, 10, 60} {
				for _, failsAfter := range []time.Duration{trip, trip / 10} {
					s := server{of: of, beyond: of, failsAfter: failsAfter, noise: noise, to: time.Hour}
					c := s.run(workers, 3*time.Second)
					require.Equal(t, []int64{0, 0}, []int64{c.limits[0], c.limits[len(c.limits)-1]}, "%+v, %d workers", s, workers)
					require.Equal(t, workers > 3, c.verdicts[Independent] == 1, "%+v, %d workers: three are few", s, workers)
				}
			}
		}
	}
}

// Failures of less than a fifth of the requests are none of its business.
func TestAdaptiveLimiter_ignoresFewFailures(t *testing.T) {
	for _, workers := range []int{2, 30} {
		c := server{of: .05, failsAfter: trip, to: time.Hour}.run(workers, 6*time.Second)
		require.Equal(t, int64(0), c.limits[len(c.limits)-1])
		require.Zero(t, c.verdicts[Dependent]+c.verdicts[Independent])
	}
}

// After an outage, all are sent again.
func TestAdaptiveLimiter_opensAfterAnOutage(t *testing.T) {
	for _, lasts := range []time.Duration{100 * ms, time.Second, 3 * time.Second} {
		for _, failsAfter := range []time.Duration{trip, trip / 10} {
			s := server{of: 1, failsAfter: failsAfter, from: time.Second, to: time.Second + lasts}
			c := s.run(40, 6*time.Second)
			require.Greater(t, c.success, 40*90, "%+v: 100 round trips", s)
		}
	}
}

// add applies outcomes, the text of which has an x for each failure, to g: in each round trip with of them are
// sent together. It returns when the last one arrived, and the last verdict that is not Unknown.
func (g *AdaptiveLimiter) add(text string, with int64, claim *uint64, now time.Time) (time.Time, Verdict) {
	last := Unknown
	for i, c := range text {
		if int64(i)%with == 0 {
			now = now.Add(trip)
		}
		*claim++
		sent := *claim + uint64(with) - uint64(int64(i)%with) - 1
		v := g.Add(Outcome{Claim: *claim, Failed: c == 'x', With: with, Open: with, Sent: sent, RoundTrip: trip}, now)
		if v != Unknown {
			last = v
		}
	}
	return now, last
}

// What the limiter makes of outcomes with many in flight, and then within its limit, a quarter of these in each step.
func TestAdaptiveLimiter_verdicts(t *testing.T) {
	type batch struct {
		with int64
		text string
	}
	r := strings.Repeat
	for name, tt := range map[string]struct {
		batches []batch
		verdict Verdict
		limit   int64
	}{
		"all are accepted":              {[]batch{{40, r(".", 80)}}, Unknown, 0},
		"one in six":                    {[]batch{{40, r(".....x", 20)}}, Unknown, 0},
		"few failures":                  {[]batch{{40, "xxxxx"}}, Unknown, 0},
		"12 of 64":                      {[]batch{{40, r(".", 29) + r("x", 11) + r(".", 23) + "x"}}, Unknown, 0},
		"13 of 64":                      {[]batch{{40, r(".", 28) + r("x", 12) + r(".", 23) + "x"}}, Unknown, 10},
		"13 of 65":                      {[]batch{{40, "x" + r(".", 28) + r("x", 11) + r(".", 24) + "x"}}, Unknown, 0},
		"few in flight":                 {[]batch{{3, r("x", 80)}}, Unknown, 0},
		"a fifth":                       {[]batch{{40, r(".x", 40)}}, Unknown, 10},
		"rarer with a quarter":          {[]batch{{40, r(".x", 40)}, {10, "....."}}, Dependent, 11},
		"too few to know":               {[]batch{{40, r(".x", 40)}, {10, "..."}}, Unknown, 10},
		"as frequent with a quarter":    {[]batch{{40, r(".x", 40)}, {10, "x........."}}, Unknown, 2},
		"rarer with a few":              {[]batch{{40, r(".x", 40)}, {10, "x........."}, {2, "....."}}, Dependent, 3},
		"as frequent with a few":        {[]batch{{40, r(".x", 40)}, {10, "x........."}, {2, "xx"}}, Independent, 0},
		"it always fails as much":       {[]batch{{40, r(".x", 40)}, {10, r("x.", 5)}, {2, r(".x", 3)}}, Independent, 0},
		"more in flight than the limit": {[]batch{{40, r(".x", 40)}, {40, r("x", 40)}}, Unknown, 10},
	} {
		var g AdaptiveLimiter
		claim, now, verdict := uint64(0), start, Unknown
		for _, b := range tt.batches {
			var v Verdict
			if now, v = g.add(b.text, b.with, &claim, now); v != Unknown {
				verdict = v
			}
		}
		require.Equal(t, tt.verdict, verdict, name)
		require.Equal(t, tt.limit, g.Limit(), name)
	}
}

// A limit below which failures are rarer doubles per round trip until there is a failure. It is multiplied by 0.7 at most
// once per round trip, and grows by one in a round trip without a failure. It is not lowered below two.
func TestAdaptiveLimiter_limitChangesPerRoundTrip(t *testing.T) {
	outcome := func(claim uint64, failed bool, open int64, sent uint64) Outcome {
		return Outcome{Claim: claim, Failed: failed, With: 40, Open: open, Sent: sent, RoundTrip: time.Hour}
	}
	beyond := outcome(11, true, 40, 50)
	beyond.With = 41
	for name, tt := range map[string]struct {
		o    Outcome
		fast bool
		want float64
	}{
		"a failure":                     {outcome(11, true, 40, 50), false, 28},
		"the first failure":             {outcome(11, true, 40, 50), true, 28},
		"sent before the last cut":      {outcome(10, true, 40, 50), false, 40},
		"sent beyond the limit":         {beyond, false, 40},
		"fewer are in flight":           {outcome(11, true, 35, 50), false, 24.5},
		"at least two":                  {outcome(11, true, 1, 50), false, 2},
		"a success":                     {outcome(11, false, 40, 50), false, 40 + 1./40},
		"a success before a failure":    {outcome(11, false, 40, 50), true, 41},
		"it is hardly used":             {outcome(11, false, 19, 50), true, 40},
		"it is used up to a half":       {outcome(11, false, 20, 50), false, 40 + 1./40},
		"a success before the last cut": {outcome(10, false, 40, 50), false, 40 + 1./40},
	} {
		g := AdaptiveLimiter{latest: start, recent: 1, n: 64, search: &search{limit: 40, least: 2, fast: tt.fast, lastCut: 10, known: true, first: start.Add(-time.Hour)}}
		require.Equal(t, Unknown, g.Add(tt.o, start), name)
		require.InDelta(t, tt.want, g.limit, 1e-9, name)
		require.Equal(t, tt.want < 40, g.lastCut == 50, name)
		require.Equal(t, tt.fast && !tt.o.Failed, g.fast, name)
		require.Equal(t, g.limit == 0 || 30 < g.Limit(), g.Check(30, trip, start), name)
	}
	for name, tt := range map[string]struct {
		failed int
		roundTrip,
		unused time.Duration
		limit int64
	}{
		"after 64 successes":                    {0, trip, 10*time.Second + 1, 0},
		"a failure":                             {1, trip, 10*time.Second + 1, 40},
		"callers may wait for their backoff":    {0, trip, 10 * time.Second, 40},
		"and longer where round trips are long": {0, 4 * time.Second, 16 * time.Second, 40},
		"but not for longer than four of them":  {0, 4 * time.Second, 16*time.Second + 1, 0},
	} {
		o := outcome(1, false, 5, 1)
		o.RoundTrip = tt.roundTrip
		g := AdaptiveLimiter{latest: start, recent: uint64(tt.failed) << 62, n: 64, search: &search{limit: 40, least: 2, known: true, used: start.Add(-tt.unused), rests: 3}}
		g.Add(o, start)
		require.Equal(t, tt.limit, g.Limit(), "a limit that is hardly used: %s", name)
		require.Equal(t, tt.limit == 0, g.rests == 0, name)
		o.Open, o.Claim = 20, 2
		if g.Add(o, start); tt.limit > 0 {
			require.Equal(t, start, g.used, "now it is used to a half")
		}
	}
}

// Failures that arrive earlier than successes decide nothing before a round trip.
func TestAdaptiveLimiter_waitsARoundTrip(t *testing.T) {
	for after, limited := range map[time.Duration]bool{0: false, trip - 1: false, trip: true} {
		var g AdaptiveLimiter
		for i := range uint64(20) {
			g.Add(Outcome{Claim: i + 1, Failed: true, With: 20, Open: 20, Sent: 20, RoundTrip: trip}, start)
		}
		g.Add(Outcome{Claim: 21, Failed: true, With: 20, Open: 20, Sent: 40, RoundTrip: trip}, start.Add(after))
		require.Equal(t, limited, g.Limit() > 0, "%v", after)
	}
}

// The limit is dropped if more calls give up and fail than failed without it.
func TestAdaptiveLimiter_giveUpsDropTheLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		share     float64 // failures without the limit
		sent, bad int     // outcomes with it
		gaveUp    int     // calls
		dropped   bool
	}{
		"few":                  {.2, 0, 0, 7, false},
		"enough":               {.2, 0, 0, 8, true},
		"all failed before":    {1, 8, 0, 100, false},
		"fewer than failed":    {.5, 100, 10, 79, false},
		"more than failed":     {.5, 100, 10, 81, true},
		"and more would":       {.5, 100, 49, 8, true},
		"most end as they did": {.5, 100, 0, 99, false},
	} {
		g := AdaptiveLimiter{latest: start, search: &search{limit: 10, share: tt.share, since: counts{tt.sent, tt.bad}}}
		dropped := false
		for range tt.gaveUp {
			require.False(t, dropped, name)
			dropped = g.GaveUp(trip, start)
		}
		require.Equal(t, tt.dropped, dropped, name)
		require.Equal(t, dropped, g.Limit() == 0, name)
		require.Equal(t, dropped, g.Check(10, trip, start), name)
		require.Equal(t, dropped, start.Before(g.restUntil), name)
	}
	var g AdaptiveLimiter
	for range 100 {
		require.False(t, g.GaveUp(trip, start), "there is no limit")
	}
}

// A rest lasts a minute, then twice as long each time, to 64 minutes, and at least 50 round trips.
func TestAdaptiveLimiter_rests(t *testing.T) {
	g := AdaptiveLimiter{search: new(search)}
	now := start
	for i := range 9 {
		g.limit = 5
		g.rest(trip, now)
		require.Equal(t, time.Minute<<min(i, 6), g.restUntil.Sub(now))
		claim := uint64(i * 1000)
		_, _ = g.add(strings.Repeat("x", 100), 10, &claim, now)
		require.Zero(t, g.Limit(), "it rests")
		_, _ = g.add(strings.Repeat("x", 30), 10, &claim, g.restUntil.Add(-4*trip))
		require.Zero(t, g.Limit(), "it still rests")
		now, _ = g.add("x", 10, &claim, g.restUntil.Add(-trip))
		require.Positive(t, g.Limit(), "the rest is over")
	}
	g.rests = 0
	g.rest(10*time.Second, now)
	require.Equal(t, 500*time.Second, g.restUntil.Sub(now))
}

// Requests are accepted with as many in flight as of late. After 64 accepted ones most of that is forgotten.
func TestAdaptiveLimiter_accepts(t *testing.T) {
	var g AdaptiveLimiter
	require.True(t, g.Accepts(1))
	require.False(t, g.Accepts(2))
	add := func(with int64, failed bool, times int) {
		for range times {
			g.Add(Outcome{With: with, Failed: failed, Open: 1, RoundTrip: trip}, start)
		}
	}
	add(30, false, 1)
	require.True(t, g.Accepts(30))
	require.False(t, g.Accepts(31))
	add(50, true, 100)
	require.False(t, g.Accepts(31), "failures show nothing")
	add(10, false, 64)
	require.True(t, g.Accepts(17))
	require.False(t, g.Accepts(18))
	add(10, false, 1000)
	require.False(t, g.Accepts(11))
}

// The share of the latest 64 outcomes that were failures, and whether most of them were.
func TestAdaptiveLimiter_shares(t *testing.T) {
	for text, want := range map[string]struct {
		share float64
		most  bool
	}{
		"":                             {.5 / 8, false},
		strings.Repeat("x", 15):        {15.5 / 23, false}, // too few
		strings.Repeat("x", 16):        {16.5 / 24, true},
		strings.Repeat(".x", 20):       {20.5 / 48, true},
		strings.Repeat(".x", 20) + ".": {20.5 / 49, false},
		strings.Repeat("x", 64) + strings.Repeat(".", 64):    {.5 / 72, false},
		strings.Repeat(".", 1000) + strings.Repeat("x", 100): {64.5 / 72, true},
	} {
		var g AdaptiveLimiter
		claim := uint64(0)
		_, _ = g.add(text, 1, &claim, start)
		require.InDelta(t, want.share, g.Share(), 1e-9, "%q", text)
		require.Equal(t, want.most, g.MostFail(), "%q", text)
	}
}

// Outcomes with fewer in flight are compared with the share of failures before, by what is likelier: the same share, or a
// quarter of it.
func TestCounts_same(t *testing.T) {
	for name, tt := range map[string]struct {
		share float64
		at    counts
		want  int // times likely
	}{
		"nothing is known":     {.5, counts{}, 0},
		"a failure":            {.5, counts{1, 1}, 0},
		"two failures":         {.5, counts{2, 2}, 1},
		"three are accepted":   {.5, counts{3, 0}, 0},
		"four are accepted":    {.5, counts{4, 0}, -1},
		"a fifth, and eleven":  {.2, counts{11, 0}, 0},
		"a fifth, and twelve":  {.2, counts{12, 0}, -1},
		"an eighth of a half":  {.5, counts{16, 1}, -3},
		"a half as before":     {.5, counts{8, 4}, 1},
		"an eighth of a fifth": {.2, counts{40, 1}, -2},
	} {
		require.Equal(t, tt.want, int(tt.at.same(tt.share)/likely), name)
	}
}

// Outcomes before a time of 10 s or four round trips without one say nothing any more: a limit that is based on them
// does not hold, and the next outcome drops it. What was found out about rests remains.
func TestAdaptiveLimiter_forgetsOldOutcomes(t *testing.T) {
	const s = time.Second
	rest := start.Add(time.Hour)
	for name, tt := range map[string]struct {
		roundTrip, after time.Duration
		old              bool
	}{
		"10 s":                  {trip, 10 * s, false},
		"more":                  {trip, 10*s + 1, true},
		"four short trips":      {5 * s / 2, 10 * s, false},
		"more than these":       {5 * s / 2, 10*s + 1, true},
		"four long trips":       {3 * s, 12 * s, false},
		"more than four trips":  {3 * s, 12*s + 1, true},
		"no outcome in between": {3 * s, 0, false},
	} {
		g := AdaptiveLimiter{recent: 1, n: 9, most: 7, latest: start, search: &search{first: start, limit: 20, lastCut: 4, share: .5, least: 3, known: true, fast: true, atLimit: counts{1, 1}, since: counts{1, 1}, gaveUp: 1, restUntil: rest, rests: 2}}
		now := start.Add(tt.after)
		require.True(t, g.Check(19, tt.roundTrip, now), name)
		require.Equal(t, tt.old, g.Check(20, tt.roundTrip, now), name)
		require.Equal(t, Unknown, g.Add(Outcome{Claim: 4, Failed: true, With: 1, Open: 1, RoundTrip: tt.roundTrip}, now), name)
		require.Equal(t, now, g.latest, name)
		require.Equal(t, tt.old, g.Check(20, tt.roundTrip, now), name)
		if !tt.old {
			require.Equal(t, []int64{10, 20}, []int64{int64(g.n), g.Limit()}, name)
			continue
		}
		require.Equal(t, AdaptiveLimiter{recent: 1, n: 1, most: 7, latest: now, search: &search{first: now, restUntil: rest, rests: 2}}, g, name)
	}
	var g AdaptiveLimiter
	require.True(t, g.Check(1<<40, trip, start), "the zero AdaptiveLimiter does not limit")
}

// If something else explains the failures, they and the limit are dropped. What was accepted, and rests, remain.
func TestAdaptiveLimiter_explained(t *testing.T) {
	var g AdaptiveLimiter
	claim := uint64(0)
	now, _ := g.add(strings.Repeat(".", 64)+strings.Repeat("x", 64), 30, &claim, start)
	require.Positive(t, g.Limit())
	g.rest(trip, now)
	g.limit = 20
	g.Explained()
	require.Equal(t, AdaptiveLimiter{most: 30, search: &search{restUntil: now.Add(time.Minute), rests: 1}}, g)
	require.False(t, g.MostFail())
	require.InDelta(t, .5/8, g.Share(), 1e-9)
	require.True(t, g.Check(30, trip, now))
	require.True(t, g.Accepts(30))
	_, v := g.add(strings.Repeat("x", 60), 30, &claim, now.Add(time.Second))
	require.Equal(t, Unknown, v)
	require.Zero(t, g.Limit(), "it rests")
}

// A limit that is not lowered further is dropped if failures are as frequent as before, also if they were rarer in the
// meantime. Only outcomes of requests that were sent since the last cut show that.
func TestAdaptiveLimiter_dropsALimitThatDoesNotHelp(t *testing.T) {
	for name, tt := range map[string]struct {
		limit, least float64
		known        bool
		before       counts // outcomes at the limit before
		claim        uint64 // the last cut was at 10
		failed       bool
		want         Verdict
	}{
		"as often":                      {2, 2, false, counts{1, 1}, 11, true, Independent},
		"as often, after a failure":     {2, 2, false, counts{4, 3}, 11, false, Independent},
		"it helped before":              {2, 2, true, counts{1, 1}, 11, true, Independent},
		"a part of many":                {31.9, 31, false, counts{1, 1}, 11, true, Independent},
		"it can be lowered":             {3, 2, false, counts{1, 1}, 11, true, Unknown},
		"one failure":                   {2, 2, false, counts{}, 11, true, Unknown},
		"sent before the last cut":      {2, 2, false, counts{1, 1}, 10, true, Unknown},
		"rarer":                         {2, 2, false, counts{3, 0}, 11, false, Dependent},
		"rarer, as is known":            {2, 2, true, counts{3, 0}, 11, false, Unknown},
		"rarer, before the last cut":    {2, 2, false, counts{3, 0}, 10, false, Unknown},
		"not any more after 64 of them": {2, 2, true, counts{64, 15}, 11, true, Unknown},
	} {
		g := AdaptiveLimiter{latest: start, recent: 1, n: 64, search: &search{limit: tt.limit, least: tt.least, known: tt.known, share: .5, atLimit: tt.before, lastCut: 10, first: start.Add(-time.Hour)}}
		require.Equal(t, tt.want, g.Add(Outcome{Claim: tt.claim, Failed: tt.failed, With: 1, Open: 1, Sent: 20, RoundTrip: trip}, start), name)
		require.Equal(t, tt.want == Independent, g.Limit() == 0, name)
		require.Equal(t, tt.want == Independent, start.Before(g.restUntil), name)
		require.LessOrEqual(t, g.atLimit.n, 64, name)
	}
	g := AdaptiveLimiter{latest: start, recent: 1<<12 - 1, n: 16, search: &search{first: start.Add(-time.Hour), atLimit: counts{7, 7}, since: counts{7, 7}, gaveUp: 7, known: true, fast: true}}
	require.Equal(t, Unknown, g.Add(Outcome{Claim: 11, Failed: true, With: 9, Open: 1, Sent: 20, RoundTrip: trip}, start))
	require.EqualValues(t, 2, g.Limit())
	require.Equal(t, []any{counts{}, counts{}, 0, false, false}, []any{g.atLimit, g.since, g.gaveUp, g.known, g.fast}, "those of an earlier limit do not count")
	require.EqualValues(t, .9, g.share, "13 of 13")
}

// A limit of two that helps is not dropped, however long it lasts: a failure in four where nine in ten failed before.
func TestAdaptiveLimiter_keepsALimitThatHelps(t *testing.T) {
	g := AdaptiveLimiter{latest: start, recent: 1, n: 64, search: &search{limit: 2, least: 2, known: true, share: .9, first: start}}
	for i := range 200_000 {
		o := Outcome{Claim: uint64(i + 1), Failed: i%4 == 0, With: 1, Open: 1, Sent: uint64(i), RoundTrip: trip}
		require.Equal(t, Unknown, g.Add(o, start.Add(time.Duration(i+1)*trip)), "outcome %d", i)
		g.limit = 2 // it was lowered again
	}
}

// Workers whose requests are accepted beside fewer others now and then are not more in flight than usual afterwards.
func TestAdaptiveLimiter_acceptsAsManyAsUsual(t *testing.T) {
	g, now := new(AdaptiveLimiter), time.Unix(0, 0)
	for i, with := range []int64{1, 2, 3, 4, 5, 5, 5, 4, 3, 4} {
		g.Add(Outcome{Claim: uint64(i + 1), With: with, Open: with, Sent: uint64(i + 1), RoundTrip: time.Millisecond, CountOnly: true}, now)
	}
	require.True(t, g.Accepts(5))
	require.False(t, g.Accepts(6))
	for range 64 {
		require.Equal(t, Unknown, g.Add(Outcome{Claim: 11, Failed: true, With: 40, Open: 40, Sent: 50, RoundTrip: time.Millisecond, CountOnly: true}, now))
	}
	require.True(t, g.MostFail())
	require.Nil(t, g.search, "what only counts takes no memory for more")
}

// Where round trips take longer than two seconds, the limiter does not find out, and stops if it turns out late. A limit
// that is known to help stays.
func TestAdaptiveLimiter_slowServers(t *testing.T) {
	for trip, slow := range map[time.Duration]bool{2 * time.Second: false, 2*time.Second + 1: true} {
		o := Outcome{Claim: 11, Failed: true, With: 40, Open: 40, Sent: 50, RoundTrip: trip}
		g := AdaptiveLimiter{latest: start, recent: 1<<12 - 1, n: 16, search: &search{first: start.Add(-time.Hour)}}
		g.Add(o, start)
		require.Equal(t, slow, g.Limit() == 0, trip)
		g = AdaptiveLimiter{latest: start, recent: 1, n: 64, search: &search{limit: 40, least: 2, share: .5, first: start.Add(-time.Hour)}}
		require.Equal(t, slow, g.Add(o, start) == Independent, trip)
		require.Equal(t, slow, start.Before(g.restUntil), trip)
		g = AdaptiveLimiter{latest: start, recent: 1, n: 64, search: &search{limit: 40, least: 2, share: .5, known: true, first: start.Add(-time.Hour)}}
		require.Equal(t, Unknown, g.Add(o, start), trip)
		require.Positive(t, g.Limit(), trip)
	}
}
