package heed

import (
	"bufio"
	"context"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// smallBodies responds to every request with a new small body.
type smallBodies struct{}

func (smallBodies) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("hello"))}, nil
}

// bytesPerCall returns the number of bytes that rt allocates for a request whose response
// body is read.
func bytesPerCall(t *testing.T, rt http.RoundTripper, ctx context.Context) float64 {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://api.test/items", nil)
	require.NoError(t, err)
	buf := make([]byte, 64)
	call := func() {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = resp.Body.Read(buf)
		}
		resp.Body.Close()
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // a garbage collection empties the pools
	const calls = 2000
	for range 200 {
		call()
	}
	lowest := math.Inf(1)
	for range 5 { // other goroutines also allocate
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range calls {
			call()
		}
		runtime.ReadMemStats(&after)
		lowest = min(lowest, float64(after.TotalAlloc-before.TotalAlloc)/calls)
	}
	return lowest
}

// TestRoundTrip_allocatesFewBytesWithALimiter checks that a Limiter adds at most 64 bytes
// to the allocations of Base. Only a Limiter that holds until the end of the body needs a
// wrapper around it.
func TestRoundTrip_allocatesFewBytesWithALimiter(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates")
	}
	many := throttle.Limit{Count: 1e9, Per: time.Second}
	ending, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, ctx := range map[string]context.Context{"background": context.Background(), "cancellable": ending} {
		base := bytesPerCall(t, smallBodies{}, ctx)
		for _, tt := range []struct {
			limiter string
			rt      http.RoundTripper
			most    float64
		}{
			{"none", &Transport{Base: smallBodies{}}, 1},
			{"token bucket", &Transport{Base: smallBodies{}, Limiter: throttle.NewTokenBucket(many)}, 64},
			{"concurrency", &Transport{Base: smallBodies{}, Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 100})}, 64},
		} {
			n := bytesPerCall(t, tt.rt, ctx) - base
			t.Logf("%s, %s: %.0f B beside %.0f B of Base", tt.limiter, name, n, base)
			require.LessOrEqual(t, n, tt.most, "%s, %s", tt.limiter, name)
		}
	}
}

// TestTransport_wrapsBodiesForHoldersOnly checks that the response body is not wrapped
// for a limit that does not hold until its end.
func TestTransport_wrapsBodiesForHoldersOnly(t *testing.T) {
	body := &opaque{Reader: strings.NewReader("x")}
	tr := &Transport{Limiter: throttle.NewTokenBucket(throttle.PerSecond(1)), Base: baseFunc(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: body}, nil
	})}
	resp, err := get(t, tr)
	require.NoError(t, err)
	require.Same(t, body, resp.Body)
}

// TestTransport_endsClaimsWithAnUncanceledContext checks that the calls that end a claim
// get a context that is not canceled, even if the context of the request is.
func TestTransport_endsClaimsWithAnUncanceledContext(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, tr *Transport, cancel func()){
		"Observe of a failure": func(t *testing.T, tr *Transport, cancel func()) {
			tr.Base = baseFunc(func(*http.Request) (*http.Response, error) { cancel(); return nil, errBroken })
		},
		"Observe of the end of a body": func(t *testing.T, tr *Transport, cancel func()) {
			tr.Trace = &Trace{AttemptDone: func(*http.Request, AttemptInfo) { cancel() }}
		},
		"Cancel": func(t *testing.T, tr *Transport, cancel func()) {
			tr.Breaker = func(*http.Request) Breaker { cancel(); return &attemptBreaker{} }
		},
		"Cancel after a panic": func(t *testing.T, tr *Transport, cancel func()) {
			tr.Breaker = func(*http.Request) Breaker { cancel(); panic("hook") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				l := &recorder{}
				tr := &Transport{Base: newScript(200), Limiter: l}
				end(t, tr, cancel)
				func() {
					defer func() { _ = recover() }()
					tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
				}()
				time.Sleep(abandonedAfter) // a sweep of openBodies ends it; a context.AfterFunc per body would allocate 160 B
				synctest.Wait()
				require.NotEmpty(t, l.contextErrs)
				for _, err := range l.contextErrs {
					require.NoError(t, err)
				}
				require.Equal(t, 1, l.cancelled+l.observed)
			})
		})
	}
}

// TestTransport_holdsASlotUntilAWebSocketIsClosed checks that a WebSocket holds a unit of
// a concurrency limit until it is closed, also after the end of the context of its
// request.
func TestTransport_holdsASlotUntilAWebSocketIsClosed(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		rw.Flush()
		io.Copy(conn, rw)
	}))
	defer srv.Close()
	slots := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
	free := func() bool {
		d, err := slots.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		return d.OK
	}
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "GET", srv.URL, nil)
	require.NoError(t, err)
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := (&Transport{Base: &http.Transport{}, Limiter: slots}).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, 101, resp.StatusCode)
	cancel()
	conn, ok := resp.Body.(io.ReadWriteCloser)
	require.True(t, ok)
	for range 2 {
		_, err = io.WriteString(conn, "hello\n")
		require.NoError(t, err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "hello\n", line)
		require.False(t, free())
	}
	half, ok := conn.(interface{ CloseWrite() error })
	require.True(t, ok, "as that of http.Transport is")
	require.NoError(t, half.CloseWrite())
	_, err = io.ReadAll(conn)
	require.NoError(t, err)
	require.False(t, free())
	require.NoError(t, conn.Close())
	require.True(t, free())
}

// TestTransport_upgradedConnectionKeepsItsMethods checks that the body of a 101 response
// keeps its methods and gets no others.
func TestTransport_upgradedConnectionKeepsItsMethods(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	for _, body := range []io.ReadCloser{a, &opaque{Reader: strings.NewReader("x")}} {
		resp, err := get(t, &Transport{Limiter: &recorder{}, Base: baseFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 101, Body: body}, nil
		})})
		require.NoError(t, err)
		_, had := body.(io.Writer)
		_, has := resp.Body.(io.Writer)
		require.Equal(t, had, has)
		_, has = resp.Body.(closeWriter)
		require.False(t, has)
		require.NoError(t, resp.Body.Close())
	}
}

// TestTransport_responseRequestIsWhatWasSentWithTheCallersContext checks Response.Request with and
// without a retry: it has what BeforeSend changed, and the context and body of the caller, also after
// the body of the response was read.
func TestTransport_responseRequestIsWhatWasSentWithTheCallersContext(t *testing.T) {
	for _, timeout := range []time.Duration{0, time.Minute} {
		for name, steps := range map[string][]any{"one attempt": {200}, "a retry": {500, 200}} {
			synctest.Test(t, func(t *testing.T) {
				policy := threeAttempts()
				policy.AttemptTimeout = timeout
				policy.BeforeSend = func(r *http.Request, _ int) error {
					r.URL.Path = "/v2" + r.URL.Path
					r.Header.Set("Signature", "s")
					return nil
				}
				req := put(t, strings.NewReader("body"), -1)
				resp, err := (&Transport{Base: newScript(steps...), Retry: policy}).RoundTrip(req)
				require.NoError(t, err)
				text(t, resp)
				require.NoError(t, resp.Request.Context().Err(), name)
				require.Equal(t, "/v2/items", resp.Request.URL.Path, name)
				require.Equal(t, "s", resp.Request.Header.Get("Signature"), name)
				again, err := resp.Request.GetBody()
				require.NoError(t, err)
				copied, err := io.ReadAll(again)
				require.NoError(t, err)
				require.Equal(t, "body", string(copied))
				require.Equal(t, "/items", req.URL.Path, "the caller's request is unchanged")
			})
		}
	}
}

// TestTransport_closeOfAnUpgradedConnectionEndsTheAttempt checks that the context of an attempt with
// an AttemptTimeout ends when the connection of its 101 response is closed, and not before. A context
// that does not end would stay registered with its parent.
func TestTransport_closeOfAnUpgradedConnectionEndsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		var attempt context.Context
		resp, err := get(t, &Transport{Retry: &RetryPolicy{AttemptTimeout: time.Second}, Base: baseFunc(func(r *http.Request) (*http.Response, error) {
			attempt = r.Context()
			return &http.Response{StatusCode: 101, Body: a}, nil
		})})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, attempt.Err())
		require.NoError(t, resp.Body.Close())
		require.ErrorIs(t, attempt.Err(), context.Canceled)
	})
}

// TestTransport_closesAnUpgradedConnectionThatIsNotReturned checks that the connection of a 101
// response is closed, and not read, if ShouldRetry rejects the response or fails.
func TestTransport_closesAnUpgradedConnectionThatIsNotReturned(t *testing.T) {
	for name, tt := range map[string]struct {
		again bool
		err   error
		after []any // the second attempt
	}{
		"ShouldRetry fails":                    {err: errBroken},
		"ShouldRetry rejects it":               {again: true, after: []any{200}},
		"ShouldRetry rejects it, then nothing": {again: true, after: []any{errConnRefused}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ours, server := net.Pipe()
			upgrade := func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: 101, Header: http.Header{}, Body: ours}, nil
			}
			policy := threeAttempts()
			policy.ShouldRetry = func(_ *http.Request, resp *http.Response, err error, again bool) (bool, error) {
				if resp != nil && resp.StatusCode == 101 {
					return tt.again, tt.err
				}
				return again, nil
			}
			start := time.Now()
			resp, err := get(t, &Transport{Base: newScript(append([]any{upgrade}, tt.after...)...), Retry: policy})
			if tt.err != nil {
				require.ErrorIs(t, err, tt.err, name)
				require.Zero(t, time.Since(start), "nothing was read")
			} else if err == nil {
				require.Equal(t, 200, resp.StatusCode, name)
			}
			_, err = server.Write([]byte("x"))
			require.ErrorIs(t, err, io.ErrClosedPipe, name)
		})
	}
}
