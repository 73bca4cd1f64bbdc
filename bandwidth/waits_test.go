package bandwidth_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A readResult is the result of a Read and when it returned.
type readResult struct {
	n     int
	err   error
	after time.Duration
}

// readAsync reads 1 KiB in a goroutine.
func readAsync(r io.Reader) <-chan readResult {
	done, begin := make(chan readResult, 1), time.Now()
	go func() {
		n, err := r.Read(make([]byte, 1<<10))
		done <- readResult{n, err, time.Since(begin)}
	}()
	return done
}

// spend takes all units of l.
func spend(t *testing.T, l throttle.Limiter) {
	d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
	require.NoError(t, err)
	d, err = l.Reserve(t.Context(), throttle.Claim{Cost: d.Limit})
	require.NoError(t, err)
	require.True(t, d.OK)
}

var errStop = errors.New("stop")

func TestBody_waitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		limit := newBucket(100)
		spend(t, limit)
		done := readAsync(downloadWith(ctx, t, &bandwidth.Transport{Base: responding(zeros{}), Download: limit}))
		time.Sleep(10 * time.Millisecond)
		cancel(errStop)
		require.Equal(t, readResult{0, errStop, 10 * time.Millisecond}, <-done)
		time.Sleep(time.Minute)
		requireFull(t, limit)
	})
}

// requireFull checks that all units of l are available.
func requireFull(t *testing.T, l throttle.Limiter) {
	d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
	require.NoError(t, err)
	require.Equal(t, d.Limit, d.Remaining)
}

func TestBody_waitEndsWhenItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := newBucket(100)
		spend(t, limit)
		body := download(t, limit, zeros{})
		done := readAsync(body)
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, body.Close())
		require.Equal(t, readResult{0, http.ErrBodyReadAfterClose, 10 * time.Millisecond}, <-done)
		_, err := body.Read(make([]byte, 1))
		require.Equal(t, http.ErrBodyReadAfterClose, err)
		require.NoError(t, body.Close())
	})
}

// TestBody_canBeClosedByATraceFunction checks that Close does not wait for the Read that
// calls it.
func TestBody_canBeClosedByATraceFunction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := newBucket(100)
		spend(t, limit)
		var body io.Closer
		q := &queue.Queue{Trace: &queue.Trace{Queued: func(*queue.Ticket, queue.ClassSnapshot) { body.Close() }}}
		b := downloadWith(t.Context(), t, &bandwidth.Transport{Base: responding(zeros{}), Download: limit, Queue: q})
		body = b
		_, err := b.Read(make([]byte, 100))
		require.Equal(t, http.ErrBodyReadAfterClose, err)
	})
}

func TestBody_waitIsBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		queue *queue.Queue
		limit throttle.Limit
		after time.Duration
	}{
		"too long from the start":  {nil, throttle.PerHour(10), 0},
		"of a queue of the caller": {&queue.Queue{MaxWait: time.Second}, throttle.PerMinute(10), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := throttle.NewTokenBucket(tt.limit)
				spend(t, limit)
				body := downloadWith(t.Context(), t, &bandwidth.Transport{Base: responding(zeros{}), Download: limit, Queue: tt.queue})
				got := <-readAsync(body)
				require.Equal(t, tt.after, got.after)
				require.ErrorIs(t, got.err, throttle.ErrRejected)
				require.ErrorContains(t, got.err, "bandwidth: 1 B were not granted: ")
			})
		})
	}
}

func TestBody_readFailsIfTheDeadlineIsTooEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		limit := throttle.NewTokenBucket(throttle.PerMinute(10))
		spend(t, limit)
		got := <-readAsync(downloadWith(ctx, t, &bandwidth.Transport{Base: responding(zeros{}), Download: limit}))
		require.Zero(t, got.after)
		require.ErrorIs(t, got.err, context.DeadlineExceeded)
		require.ErrorIs(t, got.err, throttle.ErrRejected)
	})
}

// TestTransport_clientTimeoutEndsTheUpload checks that a timeout of the http.Client ends a
// paced upload.
func TestTransport_clientTimeoutEndsTheUpload(t *testing.T) {
	for version, start := range starts {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
				defer s.Close()
				rt := &bandwidth.Transport{Base: s.Transport(), Upload: newBucket(1000)}
				defer rt.CloseIdleConnections()
				begin := time.Now()
				_, err := (&http.Client{Transport: rt, Timeout: 10 * time.Second}).Post(s.URL, "", zeros{})
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.LessOrEqual(t, time.Since(begin), 10*time.Second)
			})
		})
	}
}

// TestMiddleware_writeEndsWhenTheClientLeaves checks that a handler that waits learns that
// its client has closed the connection.
func TestMiddleware_writeEndsWhenTheClientLeaves(t *testing.T) {
	for version, start := range starts {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				m := &bandwidth.Middleware{Download: throttle.NewTokenBucket(throttle.PerMinute(6000))}
				s := start(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					_, err := io.Copy(w, zeros{})
					ended <- err
				})))
				defer s.Close()
				ctx, cancel := context.WithCancel(t.Context())
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
				require.NoError(t, err)
				resp, err := s.Client().Do(req)
				require.NoError(t, err)
				synctest.Wait() // the handler waits: net/http notices in a Write too that the client has left, with other errors
				begin := time.Now()
				cancel()
				resp.Body.Close()
				require.ErrorIs(t, <-ended, context.Canceled)
				require.Zero(t, time.Since(begin))
			})
		})
	}
}

// TestMiddleware_deadlinesEndWaits checks the deadlines of an http.ResponseController.
func TestMiddleware_deadlinesEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := newBucket(1000)
		m := &bandwidth.Middleware{Upload: limit, Download: limit}
		s := memhttp.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(w)
			for _, step := range []struct {
				name string
				set  func(time.Time) error
				call func() (int, error)
			}{
				{"read", rc.SetReadDeadline, func() (int, error) { return r.Body.Read(make([]byte, 500)) }},
				{"write", rc.SetWriteDeadline, func() (int, error) { return w.Write(make([]byte, 500)) }},
			} {
				limit.Reserve(t.Context(), throttle.Claim{Cost: 1000})
				begin := time.Now()
				assert.NoError(t, step.set(begin.Add(time.Hour)))
				assert.NoError(t, step.set(begin.Add(100*time.Millisecond)))
				if step.name == "read" { // the bytes have arrived: they are not lost, the next Read waits for them
					n, err := step.call()
					assert.NoError(t, err)
					assert.Equal(t, 500, n)
				}
				n, err := step.call()
				assert.Zero(t, n, step.name)
				assert.ErrorContains(t, err, "i/o timeout", step.name)
				assert.Equal(t, 100*time.Millisecond, time.Since(begin), step.name)
				n, err = step.call()
				assert.Zero(t, n, step.name)
				assert.ErrorContains(t, err, "i/o timeout", step.name)
				assert.NoError(t, step.set(time.Time{}))
				n, err = step.call()
				assert.NoError(t, err, step.name)
				assert.Equal(t, 500, n, step.name)
			}
		})))
		defer s.Close()
		resp, err := s.Client().Post(s.URL, "", zerosOf(5000))
		require.NoError(t, err)
		resp.Body.Close()
	})
}
