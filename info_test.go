package heed

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestInfoFrom_nothingToTell(t *testing.T) {
	resp, err := get(t, &Transport{Base: plays(200)})
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
		c := NewClient(&Transport{Base: plays(500, 200), Retry: three()})
		c.Timeout = time.Minute
		resp, err := c.Get("http://api.test/")
		require.NoError(t, err)
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.Equal(t, Info{Attempts: 2, Paused: time.Second}, info)
		resp.Body.Close()
	})
}

func TestInfoFrom_doesNotSpeakOfRequestsThatFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: plays(500, 200)}
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

func TestTrace_tellsTheStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var story []string
		tell := func(what string) func(*http.Request, Step) {
			return func(r *http.Request, s Step) {
				line := fmt.Sprint(what, " ", s.Attempt)
				if s.Response != nil {
					line += fmt.Sprint(" ", s.Response.StatusCode)
				}
				for _, d := range []time.Duration{s.Waited, s.Delay} {
					if d > 0 {
						line += fmt.Sprint(" ", d)
					}
				}
				for _, err := range []error{s.Err, s.Reason} {
					if err != nil {
						line += fmt.Sprint(" ", err)
					}
				}
				story = append(story, line)
			}
		}
		_, err := get(t, &Transport{
			Base:  plays(500, errBroken, 502),
			Retry: three(),
			Trace: &Trace{Line: tell("line"), Admit: tell("admit"), Send: tell("send"), Answer: tell("answer"), Retry: tell("retry"), GiveUp: tell("give up")},
		})
		require.NoError(t, err)
		require.Equal(t, []string{
			"line 1", "admit 1", "send 1", "answer 1 500", "retry 1 500 1s",
			"line 2", "admit 2", "send 2", "answer 2 broken", "retry 2 1s broken",
			"line 3", "admit 3", "send 3", "answer 3 502", "give up 3 502 " + ErrAttempts.Error() + ": Retry.Attempts is 3",
		}, story)
	})
}

func TestInfoFrom_tellsTheLimits(t *testing.T) {
	resp, err := get(t, &Transport{Base: plays(answer{200, "", []string{
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
