package quota

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// An update is kept for as long as its hold or one of its limits lasts.
func TestUpdate_isKept(t *testing.T) {
	limits := []throttle.RemoteLimit{{ResetAfter: 3}, {ResetAfter: 7}, {ResetAfter: 5}}
	for name, tt := range map[string]struct {
		u    Update
		want time.Duration
	}{
		"join":             {Update{Kind: UpdateJoin, Wait: 9}, 0},
		"hold":             {Update{Kind: UpdateHold, Wait: 9}, 9},
		"hold and limits":  {Update{Kind: UpdateHold, Wait: 9, Limits: limits}, 9},
		"hold, over":       {Update{Kind: UpdateHold, Wait: 6, Limits: limits}, 7},
		"limits":           {Update{Kind: UpdateLimits, Wait: 9, Limits: limits}, 7},
		"release":          {Update{Kind: UpdateRelease, Wait: time.Hour}, time.Second},
		"probe":            {Update{Kind: UpdateProbe, Limits: limits}, 0},
		"release, limited": {Update{Kind: UpdateRelease, Limits: []throttle.RemoteLimit{{ResetAfter: time.Minute}}}, time.Minute},
	} {
		require.Equal(t, tt.want, tt.u.Keep(), name)
	}
}

// What an update states counts from its publication, and no number in it is believed to be small.
func TestUpdate_ages(t *testing.T) {
	in := func(all ...time.Duration) (limits []throttle.RemoteLimit) {
		for _, d := range all {
			limits = append(limits, throttle.RemoteLimit{Limit: 9, ResetAfter: d})
		}
		return limits
	}
	for name, tt := range map[string]struct {
		u      Update
		wait   time.Duration
		limits []throttle.RemoteLimit
	}{
		"hold":               {Update{Kind: UpdateHold, Wait: 9, Age: 2}, 7, nil},
		"hold, over":         {Update{Kind: UpdateHold, Wait: 2, Age: 9}, 0, nil},
		"hold, from later":   {Update{Kind: UpdateHold, Wait: 2, Age: -9}, 2, nil},
		"hold, long":         {Update{Kind: UpdateHold, Wait: math.MaxInt64}, headers.MaxDelay, nil},
		"hold, old":          {Update{Kind: UpdateHold, Wait: math.MaxInt64, Age: math.MaxInt64}, headers.MaxDelay, nil},
		"release":            {Update{Kind: UpdateRelease, Wait: 9, Age: 2}, 11, nil},
		"release, long ago":  {Update{Kind: UpdateRelease, Wait: math.MaxInt64, Age: 2}, headers.MaxDelay + 2, nil},
		"release, negative":  {Update{Kind: UpdateRelease, Wait: -3, Age: 2}, 2, nil},
		"limits":             {Update{Limits: in(1, 5, 9), Age: 5}, 0, in(4)},
		"too many limits":    {Update{Limits: in(1, 2, 3, 4, 5, 6, 7, 8, 9)}, 0, in(1, 2, 3, 4, 5, 6, 7, 8)},
		"limits of no count": {Update{Limits: []throttle.RemoteLimit{{Unit: "tokens", ResetAfter: 5}, {RemainingUnknown: true, ResetAfter: 5}}}, 0, nil},
	} {
		u := tt.u.aged()
		require.Equal(t, Update{Kind: tt.u.Kind, Wait: tt.wait, Limits: tt.limits}, u, name)
	}
}
