package heed

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
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

// TestBody_partlyReadReaderIsSentAgain checks readers of which the program read a prefix before
// http.NewRequest: the rest is the body of all attempts.
func TestBody_partlyReadReaderIsSentAgain(t *testing.T) {
	for name, r := range map[string]io.ReadSeeker{
		"bytes.Reader":   bytes.NewReader([]byte("MAGIC:payload")),
		"strings.Reader": strings.NewReader("MAGIC:payload"),
	} {
		synctest.Test(t, func(t *testing.T) {
			_, err := io.ReadFull(r, make([]byte, 6))
			require.NoError(t, err)
			s := newScript(503, 200)
			resp, err := (&Transport{Base: s}).RoundTrip(put(t, r, -1))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode, name)
			require.Equal(t, "payload", s.got[0].body)
			require.Equal(t, "payload", s.got[1].body)
		})
	}
}

// TestBody_replaysAfterAnyPartialRead checks that the last attempt can read the whole
// body after earlier attempts read random parts of it and failed.
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

// roundTripFunc is an http.RoundTripper function. Unlike baseFunc, it does not close the
// request body.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestBody_waitsUntilBaseHasClosed checks that a retry waits for a Base that still reads
// the body when it returns, as net/http does if the response arrives early.
func TestBody_waitsUntilBaseHasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			slow    time.Duration
			closing bool // Base closes the body during a Read
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
						io.ReadFull(r.Body, make([]byte, 8)) // blocks in the middle
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

// TestBody_largeStreamCostsNoMemory sends 64 MiB without a retry and with buffering. The
// memory must not grow with the body.
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

// TestRetryPolicy_maxBodyBufferIsTheLimit checks that MaxBodyBuffer bytes are buffered
// and one more are not, with a known and an unknown length.
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

// TestBody_beforeSendGetsACopyOrNone checks that a BeforeSend hook can read a copy of each body with
// GetBody, or finds GetBody nil, and that the whole body is sent with each attempt.
func TestBody_beforeSendGetsACopyOrNone(t *testing.T) {
	const content = "content of the body"
	for name, tt := range map[string]struct {
		open   func(t *testing.T) io.Reader
		copied string // what the hook reads; "" if GetBody is nil
	}{
		"strings.Reader": {func(*testing.T) io.Reader { return strings.NewReader(content) }, content},
		"stream":         {func(*testing.T) io.Reader { return io.MultiReader(strings.NewReader(content)) }, ""},
		"file": {func(t *testing.T) io.Reader {
			path := filepath.Join(t.TempDir(), "body")
			require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			f, err := os.Open(path)
			require.NoError(t, err)
			return f
		}, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(503, response{503, "", []string{"Retry-After", "0"}}, 200)
			var copies []string
			policy := threeAttempts()
			policy.BeforeSend = func(req *http.Request, _ int) error {
				if req.GetBody == nil {
					copies = append(copies, "")
					return nil
				}
				before := time.Now()
				b, err := req.GetBody()
				require.NoError(t, err)
				require.Equal(t, before, time.Now(), "GetBody blocked")
				copied, err := io.ReadAll(b)
				require.NoError(t, err)
				copies = append(copies, string(copied))
				return b.Close()
			}
			resp, err := (&Transport{Base: s, Retry: policy}).RoundTrip(put(t, tt.open(t), -1))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, []string{tt.copied, tt.copied, tt.copied}, copies, name)
			for _, got := range s.got {
				require.Equal(t, content, got.body, name)
			}
		})
	}
}
