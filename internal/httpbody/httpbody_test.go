package httpbody

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHasBody_isFalseWithoutAnEndToWaitFor(t *testing.T) {
	body := io.NopCloser(strings.NewReader(""))
	for _, c := range []struct {
		name string
		resp *http.Response
		want bool
	}{
		{"no response", nil, false},
		{"no body", &http.Response{StatusCode: 200}, false},
		{"http.NoBody", &http.Response{StatusCode: 200, Body: http.NoBody}, false},
		{"a connection", &http.Response{StatusCode: 101, Body: body}, false},
		{"a body", &http.Response{StatusCode: 200, Body: body}, true},
	} {
		require.Equal(t, c.want, HasBody(c.resp), c.name)
	}
}

func TestErrReader_readsNothing(t *testing.T) {
	n, err := ErrReader{io.ErrClosedPipe}.Read(make([]byte, 9))
	require.Zero(t, n)
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

func TestSnippet_isAtMost256Bytes(t *testing.T) {
	require.Equal(t, "short", Snippet([]byte("short")))
	require.Equal(t, strings.Repeat("a", 256), Snippet([]byte(strings.Repeat("a", 256)+"b")))
}

// A lateClock takes twice as long as asked.
type lateClock struct{}

func (lateClock) After(d time.Duration) <-chan time.Time { return time.After(2 * d) }

func TestSleep_endsWithTheTimeOrTheContext(t *testing.T) {
	ended := errors.New("ended")
	for _, c := range []struct {
		name  string
		clock interface {
			After(time.Duration) <-chan time.Time
		}
		d, cancel time.Duration // cancel 0: before Sleep; negative: never
		took      time.Duration
		err       error
	}{
		{"the system's clock", nil, time.Second, -1, time.Second, nil},
		{"another clock", lateClock{}, time.Second, -1, 2 * time.Second, nil},
		{"a context that ends", nil, time.Hour, time.Second, time.Second, ended},
		{"another clock, a context that ends", lateClock{}, time.Hour, time.Second, time.Second, ended},
		{"no time", nil, 0, -1, 0, nil},
		{"a negative time", lateClock{}, -1, -1, 0, nil},
		{"no time, ended context", nil, 0, 0, 0, ended},
		{"a nanosecond", nil, 1, -1, 1, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if c.cancel == 0 {
				cancel(ended)
			} else if c.cancel > 0 {
				time.AfterFunc(c.cancel, func() { cancel(ended) })
			}
			start := time.Now()
			require.Equal(t, c.err, Sleep(ctx, c.clock, c.d), c.name)
			require.Equal(t, c.took, time.Since(start), c.name)
		})
	}
}

func TestRedactURL_hidesSecrets(t *testing.T) {
	for in, want := range map[string]string{
		"https://api.test/a%2Fb":                    "https://api.test/a%2Fb",
		"https://user:pass@api.test/a":              "https://api.test/a",
		"https://sk_live_1@api.test/a":              "https://api.test/a", // a key as a user
		"https://api.test/a?key=1&flag&b=&c=d=e":    "https://api.test/a?key=xxxxx&xxxxx&b=xxxxx&c=xxxxx",
		"https://api.test/a#access_token=secret":    "https://api.test/a",
		"mailto:user@api.test?subject=confidential": "mailto:user@api.test?subject=xxxxx",
	} {
		u, err := url.Parse(in)
		require.NoError(t, err)
		require.Equal(t, want, RedactURL(u))
	}
	require.Empty(t, RedactURL(nil))
}
