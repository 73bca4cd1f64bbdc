package bandwidth

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// TestStream_pacesSingleBytes checks that reads and writes of one byte take units, too.
func TestStream_pacesSingleBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := func() throttle.Limiter {
			return throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 4})
		}
		s := newStream(t.Context(), limiter(), "", "", new(queue.Queue))
		start := time.Now()
		r := iotest.OneByteReader(strings.NewReader(strings.Repeat("x", 30)))
		for range 30 {
			n, err := s.read(r, make([]byte, 10))
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		require.InDelta(t, 2.6, time.Since(start).Seconds(), .2)
		_, err := s.read(r, make([]byte, 10))
		require.Equal(t, io.EOF, err)

		s = newStream(t.Context(), limiter(), "", "", new(queue.Queue))
		start = time.Now()
		var written []byte
		for range 30 {
			n, err := writePaced(s, []byte("x"), func(p []byte) (int, error) {
				written = append(written, p...)
				return len(p), nil
			})
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		require.Len(t, written, 30)
		require.InDelta(t, 2.6, time.Since(start).Seconds(), .2)
	})
}

// TestWritePaced_faultyWriters checks writers that break the contract of io.Writer.
func TestWritePaced_faultyWriters(t *testing.T) {
	synctest.Test(t, testFaultyWriters)
}

func testFaultyWriters(t *testing.T) {
	fault := errors.New("fault")
	for name, tt := range map[string]struct {
		n       int
		err     error
		want    int
		wantErr error
	}{
		"all":              {5, nil, 5, nil},
		"short":            {3, nil, 3, io.ErrShortWrite},
		"none":             {0, nil, 0, io.ErrShortWrite},
		"more than given":  {9, nil, 5, nil},
		"negative":         {-1, nil, 0, io.ErrShortWrite},
		"short with error": {3, fault, 3, fault},
		"all with error":   {5, fault, 5, fault},
	} {
		limiter := throttle.NewTokenBucket(throttle.PerSecond(1000))
		s := newStream(t.Context(), limiter, "", "", new(queue.Queue))
		n, err := writePaced(s, "hello", func(string) (int, error) { return tt.n, tt.err })
		require.Equal(t, tt.want, n, name)
		require.Equal(t, tt.wantErr, err, name)
		d, err := limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.EqualValues(t, 1000-tt.want, d.Remaining, "%s: what was not written is returned", name)
		s.close(io.EOF)
		n, err = writePaced(s, "", func(string) (int, error) { return 0, fault })
		require.Equal(t, fault, err, "an empty write takes nothing")
		require.Zero(t, n)
	}
}

func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := waits{parent: t.Context()}
		state := func() error {
			_, err := w.context()
			return err
		}
		ctx, err := w.context()
		require.NoError(t, err)
		again, err := w.context()
		require.NoError(t, err)
		require.Equal(t, ctx, again)

		w.setDeadline(time.Now().Add(time.Second))
		time.Sleep(time.Second - 1)
		synctest.Wait()
		require.NoError(t, state())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, context.Cause(ctx), os.ErrDeadlineExceeded)
		require.ErrorIs(t, state(), os.ErrDeadlineExceeded)

		w.setDeadline(time.Time{})
		ctx, err = w.context()
		require.NoError(t, err, "without a deadline")
		w.setDeadline(time.Now())
		require.ErrorIs(t, context.Cause(ctx), os.ErrDeadlineExceeded, "a deadline that has passed")
		require.ErrorIs(t, state(), os.ErrDeadlineExceeded)

		w.setDeadline(time.Now().Add(time.Second))
		w.setDeadline(time.Now().Add(time.Minute)) // replaces the earlier one
		ctx, err = w.context()
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.NoError(t, ctx.Err())

		w.end(io.EOF)
		w.end(io.ErrUnexpectedEOF)
		require.Equal(t, io.EOF, context.Cause(ctx))
		require.Equal(t, io.EOF, state())
		w.setDeadline(time.Now())
		require.Equal(t, io.EOF, state())
	})
}

func TestChunkOf(t *testing.T) {
	for _, tt := range []struct {
		burst    int64
		per      time.Duration
		size     int64
		restored time.Duration
	}{
		{0, time.Second, 256 << 10, 0},
		{-1, time.Second, 256 << 10, 0},
		{1, 0, 1, 0},
		{1, time.Second, 1, time.Second},
		{2, time.Second, 1, time.Second / 2},
		{4, 0, 2, 0},
		{100, time.Second, 50, time.Second / 2},  // half of the burst
		{100, 10 * time.Second, 10, time.Second}, // what 1 s restores
		{10_000, 10 * time.Second, 512, 512 * time.Millisecond},
		{10_000, time.Second, 512, 51200 * time.Microsecond},
		{1_000_000, time.Second, 5000, 5 * time.Millisecond},
		{10_000_000, time.Second, 50_000, 5 * time.Millisecond},
		{1_000_000_000, time.Second, 256 << 10, 262144 * time.Nanosecond},
		{1_000_000, 0, 256 << 10, 0},
	} {
		size, restored := chunkOf(tt.burst, tt.per)
		require.Equal(t, tt.size, size, "%+v", tt)
		require.Equal(t, tt.restored, restored, "%+v", tt)
	}
	for n, burst := range map[int64]int64{1: 1, 1000: 1000, 1024: 1024, 1025: 1024, 20_480: 1024, 20_500: 1025, 1_000_000: 50_000} {
		require.Equal(t, throttle.Limit{Count: n, Per: time.Second, Burst: burst}, PerSecond(n))
	}
}

// A flushCounter is a ResponseWriter that counts calls of Flush.
type flushCounter struct {
	http.ResponseWriter
	n int
}

func (f *flushCounter) Flush() { f.n++ }

// TestResponse_flushesBeforeWaits checks that a response is flushed when a write waits, once for
// new bytes, and not while net/http may find its length.
func TestResponse_flushesBeforeWaits(t *testing.T) {
	w := &flushCounter{ResponseWriter: httptest.NewRecorder()}
	a := &response{w: w}
	for _, s := range []struct{ write, flushes int }{
		{0, 0}, {4096, 0}, {0, 0}, {1, 1}, {0, 1}, {0, 1}, {1, 2}, {0, 2},
	} {
		for _, write := range []func() (int, error){
			func() (int, error) { return a.write(make([]byte, s.write)) },
			func() (int, error) { return a.writeString("") },
		} {
			_, err := write()
			require.NoError(t, err)
		}
		a.flushBeforeWait(queue.Position{})
		require.Equal(t, s.flushes, w.n, "%+v", s)
	}
	_, err := a.writeString("x")
	require.NoError(t, err)
	a.flushBeforeWait(queue.Position{})
	require.Equal(t, 3, w.n)

	a = &response{w: w}
	for _, n := range []int{4096, 1} {
		require.Equal(t, 3, w.n)
		_, err = a.writeString(strings.Repeat("x", n))
		require.NoError(t, err)
		a.flushBeforeWait(queue.Position{})
	}
	require.Equal(t, 4, w.n, "strings count as bytes do")
}
