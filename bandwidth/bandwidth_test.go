package bandwidth_test

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
)

// zeros is an endless body.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// zerosOf returns a body of n bytes.
func zerosOf(n int64) io.Reader { return io.LimitReader(zeros{}, n) }

// roundTripper is a function as an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// responding returns a RoundTripper that returns body as a response.
func responding(body io.Reader) roundTripper {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(body), Request: r}, nil
	}
}

// download returns a paced response with body.
func download(t *testing.T, l throttle.Limiter, body io.Reader) io.ReadCloser {
	return downloadWith(t.Context(), t, &bandwidth.Transport{Base: responding(body), Download: l})
}

func downloadWith(ctx context.Context, t *testing.T, rt *bandwidth.Transport) io.ReadCloser {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://mem.test", nil)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp.Body
}

const tenMB = 10_000_000

// newBucket returns a limiter of n bytes per second.
func newBucket(n int64) throttle.Adjustable { return throttle.NewTokenBucket(bandwidth.PerSecond(n)) }

// starts are the servers of both versions of HTTP. The HTTP/2 server of Go 1.25 shares
// channels between bubbles of synctest, so it is left out there.
var starts = func() map[string]func(http.Handler) *memhttp.Server {
	all := map[string]func(http.Handler) *memhttp.Server{"HTTP/1.1": memhttp.NewServer}
	if !strings.HasPrefix(runtime.Version(), "go1.25") {
		all["HTTP/2"] = memhttp.NewHTTP2Server
	}
	return all
}()

// TestPacing_holdsTheRate sends what a limit of 10 MB/s passes in 5 s, beside its burst, in
// each direction, paced by the client or by the server.
func TestPacing_holdsTheRate(t *testing.T) {
	limit := bandwidth.PerSecond(tenMB)
	seconds := int64(5)
	if testing.Short() {
		seconds = 1
	}
	total := limit.Burst + seconds*limit.Count
	for _, tt := range []struct {
		name             string
		byServer, upload bool
	}{
		{"client, upload", false, true}, {"client, download", false, false},
		{"server, read", true, true}, {"server, write", true, false},
	} {
		for version, start := range starts {
			t.Run(tt.name+", "+version, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var client bandwidth.Transport
					var server bandwidth.Middleware
					var body io.Reader
					switch limiter := throttle.NewTokenBucket(limit); {
					case tt.byServer && tt.upload:
						server.Upload = limiter
					case tt.byServer:
						server.Download = limiter
					case tt.upload:
						client.Upload = limiter
					default:
						client.Download = limiter
					}
					if tt.upload {
						body = zerosOf(total)
					}
					s := start(server.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if !tt.upload {
							io.Copy(w, zerosOf(total))
						} else {
							n, err := io.Copy(io.Discard, r.Body)
							assert.NoError(t, err)
							assert.Equal(t, total, n)
						}
					})))
					defer s.Close()
					client.Base = s.Transport()
					defer client.CloseIdleConnections()
					begin := time.Now()
					resp, err := (&http.Client{Transport: &client}).Post(s.URL, "", body)
					require.NoError(t, err)
					_, err = io.Copy(io.Discard, resp.Body)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.InDelta(t, seconds, time.Since(begin).Seconds(), 0.005)
				})
			})
		}
	}
}

// TestPacing_neverExceedsTheLimit checks the bytes that a reader got at each moment.
func TestPacing_neverExceedsTheLimit(t *testing.T) {
	for _, limit := range []throttle.Limit{
		bandwidth.PerSecond(tenMB), bandwidth.PerSecond(1000), bandwidth.PerSecond(7),
		throttle.PerSecond(1000).WithBurst(1), throttle.PerSecond(1000).WithBurst(3), {Count: 100, Per: time.Minute},
	} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := download(t, throttle.NewTokenBucket(limit), zeros{})
				begin, buf := time.Now(), make([]byte, 64<<10)
				burst, err := throttle.NewTokenBucket(limit).Reserve(t.Context(), throttle.Claim{})
				require.NoError(t, err)
				var got int64
				for time.Since(begin) < 5*time.Second {
					n, err := body.Read(buf)
					require.NoError(t, err)
					got += int64(n)
					allowed := float64(burst.Limit) + float64(limit.Count)*float64(time.Since(begin))/float64(limit.Per)
					require.LessOrEqual(t, float64(got), allowed)
				}
				due := float64(limit.Count) * float64(time.Since(begin)) / float64(limit.Per)
				require.GreaterOrEqual(t, float64(got), due, "nothing is lost")
			})
		})
	}
}

// TestPacing_smallChunksDoNotWait checks that a chunk that the limit grants is passed on
// when it arrives, and not when a buffer is full.
func TestPacing_smallChunksDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := newBucket(10_000)
		s := memhttp.NewServer((&bandwidth.Middleware{Download: limit}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 10 {
				io.WriteString(w, "data: x\n\n")
				assert.NoError(t, http.NewResponseController(w).Flush())
				time.Sleep(time.Second)
			}
		})))
		defer s.Close()
		resp, err := (&http.Client{Transport: &bandwidth.Transport{Base: s.Transport(), Download: newBucket(10_000)}}).Get(s.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		begin, event := time.Now(), make([]byte, 9)
		for i := range 10 {
			_, err := io.ReadFull(resp.Body, event)
			require.NoError(t, err)
			require.Equal(t, time.Duration(i)*time.Second, time.Since(begin))
		}
		_, err = resp.Body.Read(event)
		require.Equal(t, io.EOF, err)
		d, err := limit.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.Equal(t, d.Limit, d.Remaining, "idle streams hold no units")
	})
}
