package statedlimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// proofAt is when a limit of left units until a minute later was stated, after claim 10, and that 4 are used.
var proofAt = time.Unix(1000, 0)

func proofOf(left int64) proof {
	var p proof
	p.update(proofAt.Add(time.Minute), left, left+4, time.Second, 10, proofAt)
	return p
}

// More accepted requests than were left contradict a limit, if they were sent after the statement and their
// responses arrive before its reset.
func TestProof_isContradicted(t *testing.T) {
	for name, tt := range map[string]struct {
		left     int64
		accepted int
		n        uint64
		after    time.Duration
		right    bool // rejections coincided with it
		refills  bool // units come back one by one
		ignored  bool
	}{
		"as many as were left":            {3, 3, 11, 0, false, false, false},
		"one more":                        {3, 4, 11, 0, false, false, true},
		"none was left":                   {0, 1, 11, 0, false, false, true},
		"sent before the statement":       {0, 9, 10, 0, false, false, false},
		"after its reset":                 {0, 9, 11, time.Minute, false, false, false},
		"just before it":                  {0, 5, 11, time.Minute - 1, false, false, true},
		"a bucket that is full then":      {0, 4, 11, time.Minute - 1, false, false, false},  // and its reset is rounded, so that it may be so earlier
		"its first unit":                  {0, 1, 11, 14 * time.Second, false, false, false}, // 4 come back within at least 59 s
		"before its first unit":           {0, 1, 11, 13 * time.Second, false, false, true},
		"two units in that time":          {0, 2, 11, 14 * time.Second, false, false, true},
		"a bucket after half of the time": {1, 3, 11, 30 * time.Second, false, false, false},
		"more than of a bucket then":      {1, 4, 11, 30 * time.Second, false, false, true},
		"just before it, it is right":     {0, 9, 11, time.Minute - time.Second, true, false, false},
		"before that":                     {0, 6, 11, time.Minute - time.Second - 1, true, false, true},
		"before that, two":                {0, 5, 11, time.Minute - time.Second - 1, true, false, false},
		"it is right, two more":           {3, 5, 11, 0, true, false, false}, // it may restore units in another way
		"it is right, three more":         {3, 6, 11, 0, true, false, true},
		"it is right, and units return":   {3, 9, 11, 0, true, true, false},
		"units return, if it was right":   {3, 4, 11, 0, false, true, true},
		"less was accepted than was left": {100, 4, 11, 0, false, false, false},
	} {
		p := proofOf(tt.left)
		p.right = tt.right
		for range tt.accepted {
			p.accepted(tt.n, tt.refills, proofAt.Add(tt.after))
		}
		require.Equal(t, tt.ignored, p.ignored, name)
		require.Equal(t, tt.right && !tt.ignored, p.right, name)
		require.Equal(t, map[bool]uint8{true: 2}[tt.ignored], p.doubt, "%s: once for all of them", name)
	}
	p := proofOf(0)
	p.right = true
	for range 3 {
		for range contradictions - 1 {
			p.accepted(11, false, proofAt)
		}
		require.False(t, p.ignored, "a rejection that coincides with it begins the count anew")
		p.rejected(12, false, true)
	}
	p = proof{}
	p.accepted(1, false, proofAt)
	require.Equal(t, proof{}, p, "nothing was stated")
}

// Rejections confirm a limit if they coincide with it: they are of claims that were sent after the statement,
// and nothing is left. The more often it was contradicted, the more of them in a row are needed.
func TestProof_rejectionsThatCoincideConfirmIt(t *testing.T) {
	for name, tt := range map[string]struct {
		left   int64
		n      uint64
		usedUp bool // the rejection states that
		right  bool
	}{
		"nothing is left":               {0, 11, false, true},
		"nothing is left, it says":      {5, 11, true, true},
		"some are left":                 {1, 11, false, false},
		"sent before":                   {0, 10, true, false},
		"more was accepted than stated": {-2, 11, false, true},
	} {
		p := proofOf(tt.left)
		p.rejected(tt.n, false, tt.usedUp)
		require.Equal(t, tt.right, p.right, name)
	}
	p := proofOf(0)
	p.known = false
	p.rejected(11, false, true)
	require.False(t, p.right, "nothing was stated")

	p = proofOf(0)
	for i, needed := range []int{4, 8, 16, 32, 64, 64} { // doubt is 2, 3, 4, 5, 6, 6
		for range contradictions {
			p.accepted(11, false, proofAt)
		}
		require.True(t, p.ignored)
		for range needed - 1 {
			p.rejected(12, false, true)
		}
		require.True(t, p.ignored, i)
		p.accepted(13, false, proofAt)
		for range needed - 1 {
			p.rejected(14, false, true)
		}
		require.True(t, p.ignored, "%d: not in a row", i)
		p.rejected(15, false, true)
		require.Equal(t, []bool{false, true}, []bool{p.ignored, p.right}, i)
	}
	for p.doubt > 0 {
		for range 64 {
			p.rejected(16, false, true)
		}
	}
	p.right = false
	p.rejected(17, false, true)
	require.True(t, p.right, "each time that it was right ends a doubt")
}

// Statements of the same window that state as many or more left are not newer. The window ends when the first
// one stated.
func TestProof_update(t *testing.T) {
	end := proofAt.Add(time.Minute)
	for name, tt := range map[string]struct {
		after time.Duration
		left  int64
		want  proof
	}{
		"more are left":            {time.Second, 6, proof{known: true, sentBy: 10, at: proofAt, used: 4, left: 5, until: end, resolution: time.Second, freeAt: proofAt}},
		"as many":                  {time.Second, 5, proof{known: true, sentBy: 10, at: proofAt, used: 4, left: 5, until: end, resolution: time.Second, freeAt: proofAt}},
		"fewer":                    {time.Second, 4, proof{known: true, sentBy: 20, at: proofAt.Add(time.Second), used: 5, left: 4, until: end, resolution: time.Second, freeAt: proofAt}},
		"just before it ends":      {time.Minute - 1, 9, proof{known: true, sentBy: 10, at: proofAt, used: 4, left: 5, until: end, resolution: time.Second, freeAt: proofAt}},
		"the next window":          {time.Minute, 9, proof{known: true, sentBy: 20, at: end, used: 1, left: 9, until: end.Add(time.Hour), resolution: time.Minute, freeAt: proofAt}},
		"the next window, used up": {time.Minute, 0, proof{known: true, sentBy: 20, at: end, used: 9, left: 0, until: end.Add(time.Hour), resolution: time.Minute, freeAt: proofAt}},
	} {
		p := proofOf(5)
		p.freeAt = proofAt
		p.update(end.Add(time.Hour), tt.left, 9, time.Minute, 20, proofAt.Add(tt.after))
		require.Equal(t, tt.want, p, name)
	}
}

// respond applies the response to claim n, which states that left of 10 units are left for a minute, and was
// received after a time.
func (e *Estimate) respond(n uint64, left int64, outcome throttle.Outcome, repeated bool, after time.Duration) {
	f := inflight.Claims{Sent: n}
	now, l := proofAt.Add(after), throttle.RemoteLimit{Limit: 10, Remaining: left, ResetAfter: time.Minute - after}
	rejected, accepted := outcome == throttle.Throttled, outcome == throttle.Accepted
	e.UpdateByResponse(l, n, rejected, accepted, repeated, now, &f)
	if accepted {
		e.Accepted(n, false, now)
	}
}

// A limit whose values are constant is ignored when more requests were accepted than were left. Rejections of
// other requests than the same one again restore it.
func TestEstimate_ignoresWhatIsContradicted(t *testing.T) {
	const left = 3
	var e Estimate
	for n := range uint64(left + 2) {
		require.False(t, e.Distrusted(), "claim %d", n)
		e.respond(n+1, left, throttle.Accepted, false, time.Second)
	}
	require.True(t, e.Distrusted())
	require.False(t, e.Proven())
	units, wait := e.Free(proofAt, &inflight.Claims{Open: 99}, Pacing{})
	require.Greater(t, units, int64(1<<40))
	require.Zero(t, wait)
	for n := range uint64(9) {
		e.respond(n+20, 0, throttle.Throttled, true, 2*time.Second)
		require.True(t, e.Distrusted(), "repeated requests show nothing about others")
	}
	for n := range uint64(4) {
		require.True(t, e.Distrusted(), "rejection %d", n)
		e.respond(n+30, 0, throttle.Throttled, false, 2*time.Second)
	}
	require.False(t, e.Distrusted())
	require.True(t, e.Proven())
	_, wait = e.Free(proofAt.Add(2*time.Second), &inflight.Claims{}, Pacing{})
	require.Positive(t, wait)
}

// A unit that comes back one by one may admit an accepted request, but not three tests, which were sent although none
// was to be back, without a rejection between them. Limits of requests in flight, and of other units, are not counted.
func TestEstimate_unitsThatComeBackContradictNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		e       Estimate
		test    bool
		ignored bool
	}{
		"window":            {Estimate{refill: refill{kind: refillsAtReset}}, false, true},
		"not known":         {Estimate{}, false, true},
		"bucket":            {Estimate{refill: refill{kind: refillsEvenly}}, false, false},
		"bucket, by a test": {Estimate{refill: refill{kind: refillsEvenly}}, true, true},
		"one by one":        {Estimate{refill: refill{kind: refillsOneByOne}}, false, false},
		"sliding counter":   {Estimate{refill: refill{kind: refillsNextWindow}}, false, false},
		"in flight":         {Estimate{concurrent: true, enforced: true}, true, false},
		"tokens":            {Estimate{Weighted: true}, true, false},
	} {
		e := tt.e
		e.proof = proofOf(0)
		e.proof.right = true
		for i := range contradictions {
			require.False(t, e.Distrusted(), "%s: after %d", name, i)
			e.Accepted(11, tt.test, proofAt)
		}
		require.Equal(t, tt.ignored, e.Distrusted(), name)
	}
}

// A limit without a reset delays nothing until a rejection coincides with it.
func TestEstimate_withoutAResetDelaysNothing(t *testing.T) {
	var e Estimate
	f := inflight.Claims{Sent: 1}
	l := throttle.RemoteLimit{Limit: 10}
	e.UpdateByResponse(l, 1, false, true, false, proofAt, &f)
	require.True(t, e.Distrusted())
	f.Sent = 2
	e.UpdateByResponse(l, 2, true, false, false, proofAt, &f)
	require.False(t, e.Distrusted())
	_, wait := e.Free(proofAt, &f, Pacing{})
	require.Positive(t, wait)
	e = NewEstimate(l, true)
	e.Update(l, 1, proofAt, &f)
	require.False(t, e.Distrusted(), "tokens are not inferred")
}

// Until a rejection confirms a limit, claims wait once, for a bounded time from the first of them on, however many windows
// are stated: a limit that is not enforced costs no more (I4).
func TestEstimate_delayOfAnUnconfirmedStatement(t *testing.T) {
	const s = time.Second
	var e Estimate
	e.respond(1, 0, throttle.Accepted, false, 0)
	free := func(after time.Duration) (units int64) {
		units, _ = e.Free(proofAt.Add(after), &inflight.Claims{}, Pacing{})
		return min(units, 1)
	}
	require.Zero(t, free(9*s), "no claim has waited")
	require.Equal(t, s, e.Delay(s, proofAt.Add(9*s)))
	require.Equal(t, s/2, e.Delay(s, proofAt.Add(9*s+s/2)), "from the first one on")
	require.Equal(t, s/10, e.Delay(s/10, proofAt.Add(9*s+s/2)), "a claim has a shorter deadline")
	require.Zero(t, free(9*s+6*s/10-1))
	require.EqualValues(t, 1, free(9*s+6*s/10))
	require.EqualValues(t, 1, e.Delay(s, proofAt.Add(30*s)), "it is over")
	e.respond(2, 0, throttle.Throttled, false, 31*s)
	require.Zero(t, free(31*s), "it is confirmed")
	require.Zero(t, e.Delay(s, proofAt.Add(31*s)))

	e = Estimate{}
	e.respond(1, 0, throttle.Accepted, false, 0)
	e.Delay(s, proofAt)
	f := inflight.Claims{Sent: 2}
	e.Update(throttle.RemoteLimit{Limit: 10, ResetAfter: time.Minute}, 2, proofAt.Add(time.Minute), &f)
	require.EqualValues(t, 1, free(time.Minute+2*s), "in the next window claims do not wait again")
	f.Sent = 3
	e.UpdateByResponse(throttle.RemoteLimit{Limit: 10, ResetAfter: time.Minute}, 3, true, false, false, proofAt.Add(time.Minute+3*s), &f)
	require.Zero(t, free(time.Minute+3*s), "it is confirmed")
	e.Weighted = true
	require.Zero(t, e.Delay(s, proofAt), "tokens are not inferred")
}

// Values that decrease to at most one are counted by the server. So rejections with none left coincide with them whenever
// their requests were sent, also those that were rejected before: a crowd is sent before the first response.
func TestProof_countsDown(t *testing.T) {
	for name, tt := range map[string]struct {
		stated   []int64 // left, by responses that accept requests
		n        uint64
		repeated bool
		usedUp   bool
		right    bool
	}{
		"counted down, sent before":       {[]int64{3, 2, 1, 0}, 9, false, true, true},
		"counted down, repeated":          {[]int64{3, 2, 1, 0}, 12, true, true, true},
		"not to the end":                  {[]int64{5, 4, 3}, 9, false, true, false},
		"constant":                        {[]int64{0, 0, 0, 0}, 9, false, true, false},
		"constant, repeated":              {[]int64{0, 0, 0, 0}, 12, true, true, false},
		"counted down, some left by then": {[]int64{3, 2, 1}, 9, false, false, false},
		"a limit of one":                  {[]int64{0}, 9, false, true, false},
	} {
		p := proofOf(4)
		for _, left := range tt.stated {
			p.restated(left, proofAt)
			p.update(proofAt.Add(time.Minute), left, 5, time.Second, 10, proofAt)
		}
		p.rejected(tt.n, tt.repeated, tt.usedUp)
		require.Equal(t, tt.right, p.right, name)
	}

	p := proofOf(4)
	p.restated(3, proofAt)
	p.restated(0, proofAt)
	p.restated(5, proofAt.Add(time.Minute)) // the next window
	p.rejected(9, false, true)
	require.False(t, p.right)
}
