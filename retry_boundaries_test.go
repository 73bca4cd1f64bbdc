package heed

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
)

// TestTransport_waitsForAtMostMaxWait checks the boundary: a stated wait of MaxWait is waited
// for, a longer one is not.
func TestTransport_waitsForAtMostMaxWait(t *testing.T) {
	for name, tt := range map[string]struct {
		retryAfter string
		maxWait    time.Duration
		status     int // of the response that the caller gets
	}{
		"shorter": {"9", 10 * time.Second, 200},
		"equal":   {"10", 10 * time.Second, 200},
		"longer":  {"11", 10 * time.Second, 429},
	} {
		for _, tracks := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(response{429, "", []string{"Retry-After", tt.retryAfter}}, 200)
				tr := &Transport{Base: s, Retry: &RetryPolicy{MaxServerWait: tt.maxWait}}
				if !tracks {
					tr.Quota = &quota.Tracker{Mode: quota.Disabled}
				}
				resp, err := get(t, tr)
				require.NoError(t, err)
				require.Equal(t, tt.status, resp.StatusCode, "%s, tracked: %v", name, tracks)
			})
		}
	}
}

// TestRetryPolicy_shouldRetryIsAsked checks for which responses ShouldRetry is called, and that
// it can have a success retried.
func TestRetryPolicy_shouldRetryIsAsked(t *testing.T) {
	for status, retried := range map[int]bool{200: true, 201: true, 304: false, 399: true, 400: false, 404: false, 500: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(status, 204)
			asked := 0
			_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{
				Backoff: backoff.Constant(time.Second),
				ShouldRetry: func(_ *http.Request, r *http.Response, err error, _ bool) (bool, error) {
					asked++
					require.NoError(t, err)
					return r.StatusCode == status && retried, nil
				},
			}})
			require.NoError(t, err)
			want := 1
			if retried {
				want = 2
			}
			require.Equal(t, want, s.sent(), status)
			require.Equal(t, want, asked, status)
		})
	}
	for status, sent := range map[int]int{200: 1, 304: 1, 399: 1, 404: 1, 500: 2, 503: 2} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(status, 204)
			_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{Backoff: backoff.Constant(time.Second)}})
			require.NoError(t, err)
			require.Equal(t, sent, s.sent(), status)
		})
	}
}

// TestRewindBody_boundaryOfItsBuffer checks that a body that cannot seek is buffered up to the
// maximum, and that the second reader reads the same bytes.
func TestRewindBody_boundaryOfItsBuffer(t *testing.T) {
	const block = 16 << 10
	for _, tt := range []struct {
		length, most int64
		again        bool // the body can be read again
	}{{0, 1, true}, {1, 1, true}, {2, 1, false}, {1, -1, false}, {block, block, true}, {block + 1, block, false}, {2*block + 1, 2*block + 1, true}} {
		for _, stated := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				text := strings.Repeat("x", int(tt.length))
				req, err := http.NewRequestWithContext(t.Context(), "POST", "http://api.test", io.NopCloser(io.MultiReader(strings.NewReader(text))))
				require.NoError(t, err)
				if req.ContentLength = -1; stated {
					req.ContentLength = tt.length
				}
				s := newScript(503, 200)
				tr := &Transport{Base: s, Retry: &RetryPolicy{Idempotent: func(*http.Request) bool { return true }, MaxBodyBuffer: tt.most}}
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				sent := []string{text}
				if tt.again {
					sent = append(sent, text)
				}
				var got []string
				for _, r := range s.got {
					got = append(got, r.body)
				}
				require.Equal(t, sent, got, "%d of %d bytes, stated: %v", tt.length, tt.most, stated)
			})
		}
	}
}

// TestDrain_boundary checks that a body of at most maxDrain bytes is read to its end, and that
// no byte of a longer one is read if its length is stated.
func TestDrain_boundary(t *testing.T) {
	for _, tt := range []struct {
		length   int64
		stated   bool
		complete bool
		read     int64
	}{
		{maxDrain, true, true, maxDrain}, {maxDrain + 1, true, false, 0},
		{maxDrain, false, true, maxDrain}, {maxDrain + 1, false, false, maxDrain + 1},
	} {
		resp := &http.Response{StatusCode: 500, ContentLength: -1}
		if tt.stated {
			resp.ContentLength = tt.length
		}
		resp.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", int(tt.length))))
		got := drain(t.Context(), resp)
		require.Equal(t, tt.complete, got.complete, "%d bytes, stated: %v", tt.length, tt.stated)
		require.Len(t, got.data, int(tt.read))
	}
}

// TestDrain_readsNothingMoreOfABlockedBody checks that a body that hangs is closed after drainTimeout or at
// the end of the context, and its connection at the same instant: net/http must not go on reading it.
func TestDrain_readsNothingMoreOfABlockedBody(t *testing.T) {
	for name, tt := range map[string]struct {
		limit time.Duration // of the context
		want  time.Duration
	}{
		"timeout": {time.Minute, drainTimeout},
		"context": {drainTimeout / 2, drainTimeout / 2},
	} {
		for _, stated := range []int64{-1, 100} {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan struct{})
				s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
					defer close(ended)
					if stated > 0 {
						w.Header().Set("Content-Length", strconv.FormatInt(stated, 10))
					}
					w.WriteHeader(503)
					io.WriteString(w, "x")
					w.(http.Flusher).Flush()
					<-r.Context().Done()
				})
				defer s.close()
				resp, err := s.base.RoundTrip(request(t, "GET", ""))
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				start := time.Now()
				require.Equal(t, drained{}, drain(ctx, resp), name)
				<-ended
				require.Equal(t, tt.want, time.Since(start), name)
				require.Equal(t, stated, resp.ContentLength, "it is as before")
			})
		}
	}
}
