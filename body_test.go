package heed

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBody_longerThanBufferIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, n := range map[string]int64{"length known": 11, "length not known": -1} {
			for _, step := range []any{500, errConnRefused} {
				s := newScript(step)
				body := &opaque{Reader: strings.NewReader("hello world")}
				resp, err := (&Transport{Base: s, Retry: &RetryPolicy{MaxBodyBuffer: 10}}).RoundTrip(put(t, body, n))
				if err != nil {
					require.ErrorIs(t, err, ErrBodyNotReplayable, name)
					require.ErrorContains(t, err, "set Request.GetBody")
				} else {
					require.Equal(t, "answer 1", text(t, resp))
				}
				require.Equal(t, 1, s.sent(), name)
				require.Equal(t, "hello world", s.got[0].body)
				require.Equal(t, 1, body.closed)
			}
		}
	})
}

func TestBody_replacedWithoutGetBodyIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, length := range []int64{-1, 0, 7} {
			s := newScript(500)
			req := request(t, "PUT", "plain text")
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader("zipped!")), length
			resp, err := (&Transport{Base: s}).RoundTrip(req)
			require.NoError(t, err)
			info, _ := InfoFrom(resp)
			require.ErrorIs(t, info.StopReason, errBodyReplaced)
			require.Equal(t, 1, s.sent())
		}
	})
}

// TestBody_replaysAfterAnyPartialRead reads random parts of a body on each attempt
// before it fails, and expects all of it on the last one.
func TestBody_replaysAfterAnyPartialRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		for range 30 {
			want := make([]byte, random.IntN(60<<10))
			for i := range want {
				want[i] = byte(random.Uint32())
			}
			var got []byte
			n := 0
			b := baseFunc(func(r *http.Request) (*http.Response, error) {
				if n++; n < 6 {
					io.CopyN(io.Discard, r.Body, random.Int64N(int64(len(want)+100)))
					return nil, errBroken
				}
				got, _ = io.ReadAll(r.Body)
				return newResponse(200, ""), nil
			})
			_, err := (&Transport{Base: b, Retry: &RetryPolicy{MaxAttempts: 6}}).RoundTrip(put(t, &opaque{Reader: bytes.NewReader(want)}, -1))
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, got))
		}
	})
}

// roundTripFunc is an http.RoundTripper made of a function that closes the body of the request
// when it wants to, which baseFunc does when the function returns.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestBody_waitsUntilBaseHasClosed has a Base that still reads when it returns, as
// net/http does if the answer comes early.
func TestBody_waitsUntilBaseHasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			slow    time.Duration
			closing bool // Base closes the body while it still reads
			sent    int
		}{{200 * time.Millisecond, false, 2}, {200 * time.Millisecond, true, 2}, {time.Hour, false, 1}, {time.Hour, true, 1}} {
			slow, sent := tt.slow, tt.sent
			pr, pw := io.Pipe()
			go func() {
				io.WriteString(pw, "hello ")
				time.Sleep(slow)
				io.WriteString(pw, "world")
				pw.Close()
			}()
			var got string
			n := 0
			early := roundTripFunc(func(r *http.Request) (*http.Response, error) {
				if n++; n == 1 {
					go func() {
						io.ReadFull(r.Body, make([]byte, 8)) // hangs in the middle
						r.Body.Close()
					}()
					if synctest.Wait(); tt.closing {
						r.Body.Close()
					}
					return newResponse(503, "early"), nil
				}
				b, _ := io.ReadAll(r.Body)
				r.Body.Close()
				got = string(b)
				return newResponse(200, ""), nil
			})
			resp, err := (&Transport{Base: early}).RoundTrip(put(t, pr, -1))
			require.NoError(t, err)
			require.Equal(t, sent, n)
			if sent == 2 {
				require.Equal(t, "hello world", got)
			} else {
				require.Equal(t, "early", text(t, resp))
			}
			time.Sleep(slow)
			synctest.Wait()
		}
	})
}

// TestBody_largeStreamCostsNoMemory sends 64 MiB that need no retry, with bodies
// kept: what is kept must not grow with it.
func TestBody_largeStreamCostsNoMemory(t *testing.T) {
	const size = 64 << 20
	buf := make([]byte, 32<<10)
	b := baseFunc(func(r *http.Request) (*http.Response, error) {
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, r.Body, buf)
		require.NoError(t, err)
		require.EqualValues(t, size, n)
		return newResponse(200, ""), nil
	})
	tr := &Transport{Base: b}
	body := func() io.Reader { return &opaque{Reader: io.LimitReader(zeros{}, size)} }
	for _, n := range []int64{-1, size} {
		req := put(t, body(), n)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := tr.RoundTrip(req)
		require.NoError(t, err)
		runtime.ReadMemStats(&after)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(512<<10))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// MaxBodyBuffer bytes are kept; one more are not, be the length known or not.
func TestRetryPolicy_maxBodyBufferIsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, known := range []bool{true, false} {
			for size, sent := range map[int]int{100: 2, 101: 1} {
				s, length := newScript(503, 200), int64(-1)
				if known {
					length = int64(size)
				}
				body := &opaque{Reader: strings.NewReader(strings.Repeat("x", size))}
				_, err := (&Transport{Base: s, Retry: &RetryPolicy{MaxBodyBuffer: 100}}).RoundTrip(put(t, body, length))
				require.NoError(t, err)
				require.Equal(t, sent, s.sent(), "%d bytes, length known: %v", size, known)
				require.Equal(t, 1, body.closed)
			}
		}
	})
}
