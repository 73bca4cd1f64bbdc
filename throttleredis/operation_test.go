package throttleredis

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestStore_reportsOperations(t *testing.T) {
	var names []string
	var errs []error
	s := &Store{Client: client(t), Prefix: t.Name(), OnOperation: func(name string, took time.Duration, err error) {
		require.GreaterOrEqual(t, took, time.Duration(0))
		names, errs = append(names, name), append(errs, err)
	}}
	l := s.TokenBucket(throttle.PerHour(5))
	d, err := l.Reserve(t.Context(), throttle.Claim{})
	require.NoError(t, err)
	l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = l.Reserve(ctx, throttle.Claim{})
	require.Error(t, err)
	require.Equal(t, []string{"reserve", "settle", "reserve"}, names)
	require.Equal(t, []error{nil, nil}, errs[:2])
	require.ErrorIs(t, errs[2], err)
}
