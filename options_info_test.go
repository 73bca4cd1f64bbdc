package heed

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInfoFrom_falseWithoutEvents(t *testing.T) {
	resp, err := get(t, &Transport{Base: newScript(200)})
	require.NoError(t, err)
	_, ok := InfoFrom(resp)
	require.False(t, ok)
	_, ok = InfoFrom(nil)
	require.False(t, ok)
	_, ok = InfoFrom(&http.Response{})
	require.False(t, ok)
}

func TestInfoFrom_survivesAClientWithATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(&Transport{Base: newScript(500, 200), Retry: threeAttempts()})
		c.Timeout = time.Minute
		resp, err := c.Get("http://api.test/")
		require.NoError(t, err)
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.Equal(t, Info{Attempts: 2, BackoffWait: time.Second}, info)
		resp.Body.Close()
	})
}

func TestInfoFrom_doesNotApplyToLaterRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: newScript(500, 200)}
		type key struct{}
		resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(context.WithValue(t.Context(), key{}, "mine")))
		require.NoError(t, err)
		require.Equal(t, "mine", resp.Request.Context().Value(key{}))
		next, err := tr.RoundTrip(request(t, "GET", "").WithContext(resp.Request.Context()))
		require.NoError(t, err)
		_, ok := InfoFrom(next)
		require.False(t, ok)
	})
}

func TestInfoFrom_reportsTheLimits(t *testing.T) {
	resp, err := get(t, &Transport{Base: newScript(response{200, "", []string{
		"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "59", "X-RateLimit-Reset", "30",
	}})})
	require.NoError(t, err)
	info, ok := InfoFrom(resp)
	require.True(t, ok)
	require.Equal(t, 1, info.Attempts)
	require.Len(t, info.Limits, 1)
	require.EqualValues(t, 60, info.Limits[0].Limit)
	require.EqualValues(t, 59, info.Limits[0].Remaining)
	require.Equal(t, 30*time.Second, info.Limits[0].ResetAfter)
}
