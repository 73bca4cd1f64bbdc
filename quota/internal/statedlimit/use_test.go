package statedlimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// Claims and units that are used for them give the units for each. A window begins with what the one before has shown.
func TestUse_isMeasured(t *testing.T) {
	for name, tt := range map[string]struct {
		before, each float64
		left         int64
		n            uint64
		want         float64
	}{
		"one each":                         {0, 0, 90, 20, 1},
		"the first claims count with four": {0, 0, 80, 14, 3},        // (4 + 20) / 8
		"many claims":                      {0, 0, 1, 106, 1.03},     // (4 + 99) / 100
		"five each":                        {5, 5, 50, 20, 5},        // (20 + 50) / 14
		"as before":                        {5, 5, 100, 10, 5},       // no claim yet
		"less than before":                 {5, 5, 90, 20, 30. / 14}, // (20 + 10) / 14
		"never below one":                  {0, 0, 99, 1000, 1},      // others gave units back
		"none is left":                     {5, 5, 0, 20, 5},         // claims may have been rejected
		"an earlier claim":                 {5, 5, 40, 10, 5},        // responses are out of order
		"units came back":                  {0, 5, 101, 20, 5},       // it begins again with what is known
	} {
		u := use{left: 100, claim: 10, before: tt.before, each: tt.each}
		u.update(tt.left, tt.n, false)
		require.InDelta(t, tt.want, max(u.each, 1), .006, name)
	}
	u := use{left: 100, claim: 10, each: 7}
	u.update(150, 20, false)
	require.Equal(t, use{left: 150, claim: 20, before: 7, each: 7}, u)
	u.update(90, 30, true)
	require.Equal(t, use{left: 90, claim: 30, before: 7, each: 7}, u, "a window has begun")
}

// What is left suffices for fewer requests, once a rejection has shown that the limit is enforced: as many as are nearest
// to it, the requests in flight included.
func TestEstimate_fewerRequestsIfEachUsesMore(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		left, open int64
		proven     bool
		want       int64
	}{
		"ten":                   {50, 0, true, 10},
		"less those in flight":  {50, 4, true, 6},
		"the last one":          {3, 0, true, 1},
		"less than half of one": {2, 0, true, 0},
		"not proven":            {50, 4, false, 46},
	} {
		e := Estimate{Limit: 100, Remaining: tt.left, At: now, Reset: now.Add(time.Minute), refill: refill{kind: refillsAtReset}, use: use{each: 5}, proof: proof{right: tt.proven}}
		free, wait := e.Free(now, &inflight.Claims{Open: tt.open}, Pacing{})
		require.Equal(t, tt.want, free, name)
		require.Equal(t, tt.want == 0, wait > 0, name)
	}
	e := Estimate{use: use{each: 5}}
	for units, want := range map[int64]bool{0: true, 4: true, 5: false} {
		require.Equal(t, want, e.TooFew(units), units)
	}
	require.True(t, new(Estimate).TooFew(0))
	require.False(t, new(Estimate).TooFew(1))
}

// What another quota or process has learned begins a measurement with the latest claim, and claims of different costs are
// not measured.
func TestEstimate_measuresUse(t *testing.T) {
	for name, tt := range map[string]struct {
		n        uint64
		weighted bool
		want     use
	}{
		"a response":          {30, false, use{left: 60, claim: 30, each: 1}},
		"of another process":  {0, false, use{left: 60, claim: 50, each: 1}},
		"claims of any costs": {30, true, use{}},
	} {
		e := Estimate{Limit: 100, Remaining: 100, At: proofAt, Reset: proofAt, Weighted: tt.weighted}
		if !tt.weighted {
			e.use.each = 1
			tt.want.before = 1
		}
		f := inflight.Claims{Sent: 50}
		e.Update(throttle.RemoteLimit{Limit: 100, Remaining: 60, ResetAfter: time.Minute}, tt.n, proofAt, &f)
		require.Equal(t, tt.want, e.use, name)
	}
}

// A rejection with less left than a request uses confirms the limit.
func TestEstimate_tooFewUnitsConfirmALimit(t *testing.T) {
	for left, right := range map[int64]bool{0: true, 4: true, 5: false} {
		e := Estimate{Limit: 100, Remaining: left, At: proofAt, Reset: proofAt.Add(time.Minute), LastSent: 1, use: use{each: 5}}
		f := inflight.Claims{Sent: 1}
		l := throttle.RemoteLimit{Limit: 100, Remaining: left, ResetAfter: time.Minute}
		e.Update(l, 1, proofAt, &f)
		f.Sent = 2
		e.UpdateByResponse(l, 2, true, false, false, proofAt, &f)
		require.Equal(t, right, e.Proven(), left)
	}
}
