package throttle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestFallback_secondaryDecidesOnError(t *testing.T) {
	var errs []error
	local := newBucket(1, time.Hour, 5)(nil)
	f := throttle.NewFallback(throttle.FallbackConfig{Primary: unreachable{}, Secondary: local, OnError: func(err error) { errs = append(errs, err) }})
	d := reserve(t, f, throttle.Claim{Cost: 2})
	require.True(t, d.OK && d.Degraded)
	require.Equal(t, []error{errUnavailable}, errs)
	require.EqualValues(t, 3, remaining(t, local))
	f.Report(t.Context(), throttle.Claim{Cost: 2}, d, throttle.Feedback{State: throttle.Unused})
	require.EqualValues(t, 5, remaining(t, local))
	d = reserve(t, f, throttle.Claim{Cost: 6})
	require.True(t, !d.OK && d.Degraded)
}

// Units are returned to the limiter that granted them, even if the store is available
// again.
func TestFallback_endsClaimAtTheLimiterThatGranted(t *testing.T) {
	store, local := granting(1, 1), granting(2, 2)
	f := throttle.NewFallback(throttle.FallbackConfig{Primary: store, Secondary: local})
	up := reserve(t, f, throttle.Claim{})
	store.err = errUnavailable
	down := reserve(t, f, throttle.Claim{})
	require.True(t, !up.Degraded && down.Degraded)
	store.err = nil
	f.Report(t.Context(), throttle.Claim{}, down, throttle.Feedback{State: throttle.Unused})
	f.Report(t.Context(), throttle.Claim{}, up, throttle.Feedback{})
	require.Equal(t, local.granted, local.cancelled)
	require.Equal(t, store.granted, store.observed)
	require.Empty(t, store.cancelled)
	require.Empty(t, local.observed)
}

func TestFallback_callerErrorsAreReturned(t *testing.T) {
	why := errors.New("the user has left")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	local := granting(1, 1)
	f := throttle.NewFallback(throttle.FallbackConfig{Primary: unreachable{}, Secondary: local, OnError: func(err error) { t.Error(err) }})
	_, err := f.Reserve(ctx, throttle.Claim{})
	require.Equal(t, why, err)
	f = throttle.NewFallback(throttle.FallbackConfig{Primary: newBucket(1, time.Second, 1)(nil), Secondary: local})
	_, err = f.Reserve(t.Context(), throttle.Claim{Cost: -1})
	require.Equal(t, throttle.ErrCost, err)
	require.Empty(t, local.claims)
}

func TestFallback_bothFail(t *testing.T) {
	other := errors.New("so is this one")
	f := throttle.NewFallback(throttle.FallbackConfig{Primary: unreachable{}, Secondary: &fakeLimiter{err: other}})
	_, err := f.Reserve(t.Context(), throttle.Claim{})
	require.ErrorIs(t, err, errUnavailable)
	require.ErrorIs(t, err, other)
}
