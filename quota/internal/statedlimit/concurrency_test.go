package statedlimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

func TestConcurrencyTest_distinguishesWindows(t *testing.T) {
	var s concurrencyTest
	for window := range int64(5) {
		for k := range int64(100) { // windows, up to 30 at a time
			require.False(t, s.update(100, 99-k, min(29, 99-k)-(k+window)%7))
		}
	}
	s = concurrencyTest{}
	for k := range int64(40) {
		require.False(t, s.update(100, 99-k%10, k%10), "no request was rejected: the numbers may be constant")
	}
	s = concurrencyTest{enforced: true}
	for k := range int64(40) { // workers, up to ten at a time
		s.update(100, 99-k%10, k%10)
	}
	require.True(t, s.confirmed)
	for range maxMisfits {
		require.True(t, s.update(100, 20, 3), "other clients may have some")
	}
	require.False(t, s.update(100, 20, 3))
	s.confirmed = true
	s.rejected()
	for k := range int64(40) {
		require.False(t, s.update(100, 99-k%10, k%10), "a request was rejected")
	}
}

// What is idle and what is in flight make up the limit, or differ from it by one, or by a third of
// the requests in flight, which may not have arrived.
func TestConcurrencyTest_toleratesRequestsThatHaveNotArrived(t *testing.T) {
	for _, tt := range []struct {
		left, open int64
		fits       int64
	}{
		{6, 3, 1}, {5, 3, 0}, // of 10
		{7, 3, 1}, {8, 3, 1}, {9, 3, 1}, {10, 3, 0},
		{9, 0, 1}, {8, 0, 0}, {11, 0, 1}, {12, 0, 0},
		{8, 6, 0}, {7, 6, 1},
	} {
		var c concurrencyTest
		require.False(t, c.update(10, tt.left, tt.open))
		require.Equal(t, tt.fits, c.fits, "%d left, %d in flight", tt.left, tt.open)
		require.EqualValues(t, 1-tt.fits, c.misfits, "%d left, %d in flight", tt.left, tt.open)
	}
}

// A limit counts requests in flight if its sum was constant for eight responses and one for each request
// in flight, and what is left has varied by three, of a limit of three by two. Of smaller limits, that is not known. Nine other sums in a row end that.
func TestConcurrencyTest_confirms(t *testing.T) {
	fitsOf := func(limit int64, opens ...int64) (c concurrencyTest) {
		c.rejected()
		for _, open := range opens {
			c.update(limit, max(limit-open, 0), open)
		}
		return c
	}
	fits := func(opens ...int64) concurrencyTest { return fitsOf(10, opens...) }
	for name, tt := range map[string]struct {
		c         concurrencyTest
		confirmed bool
	}{
		"12 fits, up to 4":           {fits(1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4), true},
		"11 fits, up to 4":           {fits(1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3), false},
		"a range of 2":               {fits(1, 2, 3, 3, 1, 2, 3, 3, 1, 2, 3, 1, 2, 3), false},
		"lower later":                {fits(4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1), true},
		"all units of three":         {fitsOf(3, 3, 2, 1, 3, 2, 1, 3, 2, 1, 3, 2, 1), true},
		"all units of two":           {fitsOf(2, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1), false},
		"a bucket of one":            {fitsOf(1, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0), false},
		"none in flight at first":    {fits(3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0), true},
		"never fewer than two below": {fits(5, 4, 3, 5, 4, 3, 5, 4, 3, 5, 4, 3, 5), false},
	} {
		require.Equal(t, tt.confirmed, tt.c.confirmed, name)
	}
	c := fits(1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4)
	require.EqualValues(t, 12, c.fits)
	for i := range 8 {
		require.True(t, c.update(10, 0, 1), i)
		require.EqualValues(t, []int64{6, 3, 1, 0, 0, 0, 0, 0}[i], c.fits)
	}
	one := c
	require.True(t, one.update(10, 9, 1), "one that fits begins the count anew")
	require.Zero(t, one.misfits)
	require.EqualValues(t, []int64{9, 9}, []int64{one.minLeft, one.maxLeft})
	require.False(t, c.update(10, 0, 1))
	require.False(t, c.confirmed)
}

// A rejection that such a limit would not have caused excludes it, unless the server names it so.
func TestConcurrencyTest_rejectionExcludesIt(t *testing.T) {
	for name, tt := range map[string]struct{ before, after concurrencyTest }{
		"not confirmed": {concurrencyTest{fits: 3}, concurrencyTest{enforced: true, fits: 3}},
		"confirmed":     {concurrencyTest{confirmed: true, fits: 30}, concurrencyTest{excluded: true}},
		"named":         {concurrencyTest{confirmed: true, named: true}, concurrencyTest{confirmed: true, named: true}},
	} {
		c := tt.before
		c.rejected()
		require.Equal(t, tt.after, c, name)
	}
	c := concurrencyTest{excluded: true}
	for range 30 {
		require.False(t, c.update(10, 9, 1))
	}
	require.Zero(t, c.fits)
	c = NewEstimate(throttle.RemoteLimit{Unit: UnitConcurrent}, false).concurrency
	require.True(t, c.update(10, 0, 0), "named: whatever the sum is")
	require.Equal(t, concurrencyTest{}, NewEstimate(throttle.RemoteLimit{Unit: "requests"}, false).concurrency)
}

// If other clients have all units, one request is sent a second after the latest response.
func TestEstimate_probesAConcurrencyLimitOfOthers(t *testing.T) {
	now := time.Unix(1000, 0)
	e := Estimate{concurrency: concurrencyTest{confirmed: true, named: true}}
	var f inflight.Claims
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 0, Unit: UnitConcurrent}, 0, now, &f))
	units, wait := e.freeConcurrency(now, &f, Pacing{})
	require.Zero(t, units)
	require.Equal(t, time.Second, wait)
	units, wait = e.freeConcurrency(now.Add(time.Second), &f, Pacing{})
	require.EqualValues(t, 1, units)
	require.Zero(t, wait)
	f.Add()
	units, wait = e.freeConcurrency(now.Add(time.Second), &f, Pacing{})
	require.Zero(t, units, "it is in flight")
	require.Zero(t, wait, "until its response arrives")
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 3, Unit: UnitConcurrent}, 0, now, &f))
	require.Equal(t, []int64{10, 4}, []int64{e.Limit, e.Remaining}, "with the one in flight")
	units, _ = e.freeConcurrency(now, &f, Pacing{})
	require.EqualValues(t, 3, units)
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 12, Unit: UnitConcurrent}, 0, now, &f))
	require.Equal(t, []int64{12, 10}, []int64{e.Limit, e.Remaining}, "at most the limit")
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Remaining: 5, Unit: UnitConcurrent}, 0, now, &f))
	require.Equal(t, []int64{5, 6}, []int64{e.Limit, e.Remaining}, "without a limit")
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Limit: 1, Remaining: 1, Unit: UnitConcurrent}, 0, now, &f))
	require.Equal(t, []int64{1, 1}, []int64{e.Limit, e.Remaining}, "a limit of one")
	units, wait = e.freeConcurrency(now, &inflight.Claims{}, Pacing{})
	require.EqualValues(t, 1, units)
	require.Zero(t, wait)
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 3, Unit: UnitConcurrent}, 1, now, &f))
	require.EqualValues(t, 5, e.Remaining, "with the one in flight, and the one that has ended")
	e.Remaining = 0
	units, wait = e.freeConcurrency(e.Reset.Add(-1), &inflight.Claims{}, Pacing{})
	require.Zero(t, units)
	require.EqualValues(t, 1, wait)
}
