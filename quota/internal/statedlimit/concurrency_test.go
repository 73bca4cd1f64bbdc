package statedlimit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// A limit of requests in flight, which a server may state although it is not enforced, delays nothing until a rejection
// states that none is left. Until 9d1ebde0 a constant "0 remaining" sent requests one by one.
func TestEstimate_aConcurrencyLimitDelaysAfterARejection(t *testing.T) {
	now := time.Unix(1000, 0)
	none := throttle.RemoteLimit{Limit: 10, Unit: UnitConcurrent}
	e := NewEstimate(none, false)
	var f inflight.Claims
	free := func() int64 {
		units, _ := e.Free(now, &f, Pacing{})
		return units
	}
	f.Add()
	e.UpdateByResponse(none, 1, false, true, false, now, &f)
	require.True(t, e.CountsInFlight())
	require.Equal(t, int64(math.MaxInt64), free())
	e.UpdateByResponse(throttle.RemoteLimit{Limit: 10, Remaining: 3, Unit: UnitConcurrent}, 1, true, false, false, now, &f)
	require.Equal(t, int64(math.MaxInt64), free(), "it was rejected for another reason")
	e.UpdateByResponse(none, 1, true, false, false, now, &f)
	require.Zero(t, free())
	e.UpdateByResponse(throttle.RemoteLimit{Limit: 10, Remaining: 3, Unit: UnitConcurrent}, 1, false, true, false, now, &f)
	require.EqualValues(t, 4, free(), "three, and the one whose response this is")
	other := NewEstimate(throttle.RemoteLimit{Limit: 10}, false)
	require.False(t, other.CountsInFlight(), "only the server knows it")
}

// If other clients have all units, one request is sent a second after the latest response.
func TestEstimate_probesAConcurrencyLimitOfOthers(t *testing.T) {
	now := time.Unix(1000, 0)
	e := Estimate{concurrent: true, enforced: true}
	var f inflight.Claims
	e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 0, Unit: UnitConcurrent}, 0, now, &f)
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
	e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 3, Unit: UnitConcurrent}, 0, now, &f)
	require.Equal(t, []int64{10, 4}, []int64{e.Limit, e.Remaining}, "with the one in flight")
	units, _ = e.freeConcurrency(now, &f, Pacing{})
	require.EqualValues(t, 3, units)
	e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 12, Unit: UnitConcurrent}, 0, now, &f)
	require.Equal(t, []int64{12, 10}, []int64{e.Limit, e.Remaining}, "at most the limit")
	e.updateConcurrency(throttle.RemoteLimit{Remaining: 5, Unit: UnitConcurrent}, 0, now, &f)
	require.Equal(t, []int64{5, 6}, []int64{e.Limit, e.Remaining}, "without a limit")
	e.updateConcurrency(throttle.RemoteLimit{Limit: 1, Remaining: 1, Unit: UnitConcurrent}, 0, now, &f)
	require.Equal(t, []int64{1, 1}, []int64{e.Limit, e.Remaining}, "a limit of one")
	units, wait = e.freeConcurrency(now, &inflight.Claims{}, Pacing{})
	require.EqualValues(t, 1, units)
	require.Zero(t, wait)
	e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 3, Unit: UnitConcurrent}, 1, now, &f)
	require.EqualValues(t, 5, e.Remaining, "with the one in flight, and the one that has ended")
	e.Remaining = 0
	units, wait = e.freeConcurrency(e.Reset.Add(-1), &inflight.Claims{}, Pacing{})
	require.Zero(t, units)
	require.EqualValues(t, 1, wait)
}
