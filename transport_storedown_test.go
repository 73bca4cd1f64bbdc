package heed

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A failingLimiter is a limiter whose store does not respond.
type failingLimiter struct{ err error }

func (s failingLimiter) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{}, s.err
}
func (failingLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (failingLimiter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

func TestTransport_sendsNothingWhileAStoreIsDown(t *testing.T) {
	down, sent := failingLimiter{errors.New("store is down")}, 0
	sends := baseFunc(func(*http.Request) (*http.Response, error) { sent++; return newResponse(200, ""), nil })
	tr := &Transport{Base: sends, Limiter: down}
	_, err := get(t, tr)
	require.ErrorIs(t, err, down.err)
	require.Zero(t, sent)

	tr = &Transport{Base: sends, Limiter: throttle.NewFallback(throttle.FallbackConfig{Primary: down, Secondary: throttle.AllowAll})}
	_, err = get(t, tr)
	require.NoError(t, err)
	require.Equal(t, 1, sent)
}
