package bandwidth

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A countingLimiter counts the units that are taken. It grants nothing while it is closed.
type countingLimiter struct {
	mu     sync.Mutex
	closed bool
	taken  int64
}

func (l *countingLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := throttle.Decision{OK: !l.closed, Limit: 1000, Per: time.Second}
	if l.closed {
		d.Wait = time.Millisecond
	} else if !c.DryRun {
		l.taken += c.Cost
	}
	return d, nil
}

func (l *countingLimiter) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		l.add(-c.Cost)
		return
	}
	l.add(f.ExtraCost(c, d))
}

// Traits implements throttle.Limiter.
func (*countingLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

func (l *countingLimiter) add(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken += n
}

func (l *countingLimiter) set(closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = closed
}

// TestStream_aDeadlineChargesNothingTwice reads in small pieces, so that the stream claims more than
// it needs for the moment, and lets a deadline end a wait for the rest.
func TestStream_aDeadlineChargesNothingTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, total := new(countingLimiter), 0
		s := newStream(t.Context(), l, "", "tenant", new(queue.Queue))
		read := func(n int, wait time.Duration) {
			l.set(wait > 0)
			time.AfterFunc(wait, func() { l.set(false) })
			got, err := s.read(bytes.NewReader(make([]byte, 1000)), make([]byte, n))
			require.NoError(t, err)
			total += got
		}
		read(10, 10*time.Millisecond)
		read(10, 10*time.Millisecond)
		require.Positive(t, s.unused)
		s.waits.setDeadline(time.Now().Add(5 * time.Millisecond))
		read(30, 10*time.Millisecond) // the bytes have arrived, and are charged before the next read
		s.waits.setDeadline(time.Time{})
		time.Sleep(10 * time.Millisecond)
		read(10, 0)
		s.close(net.ErrClosed)
		require.Equal(t, 60, total)
		require.EqualValues(t, total, l.taken)
	})
}

// TestStream_keepsUnitsWhileTheLimitRestoresTwoChunks checks when a stream that has claimed in
// advance returns what it has not used. A limit of 1,000 bytes per second restores a chunk,
// half of its burst, in 500 ms.
func TestStream_keepsUnitsWhileTheLimitRestoresTwoChunks(t *testing.T) {
	for idle, kept := range map[time.Duration]bool{time.Second: true, time.Second + 1: false} {
		synctest.Test(t, func(t *testing.T) {
			l := new(countingLimiter)
			s := newStream(t.Context(), l, "", "tenant", new(queue.Queue))
			read := func(n int, wait time.Duration) {
				l.set(wait > 0)
				time.AfterFunc(wait, func() { l.set(false) })
				got, err := s.read(bytes.NewReader(make([]byte, 1000)), make([]byte, n))
				require.NoError(t, err)
				require.Equal(t, n, got)
			}
			for range 2 {
				read(10, 10*time.Millisecond)
			}
			require.EqualValues(t, 30, l.taken, "10, then twice as much")
			time.Sleep(idle)
			read(10, 0)
			require.EqualValues(t, 30, l.taken, "what was left, or another claim of 10")
			require.Equal(t, kept, s.cost == 20, "%v: the latest claim", idle)
			require.Zero(t, s.unused)
		})
	}
}

// TestStream_claimsInAdvanceOnlyWhileItWaits checks the claim after a pause that follows a wait.
func TestStream_claimsInAdvanceOnlyWhileItWaits(t *testing.T) {
	for pause, want := range map[time.Duration]int64{0: 20, 2 * time.Second: 10} {
		synctest.Test(t, func(t *testing.T) {
			l := new(countingLimiter)
			s := newStream(t.Context(), l, "", "tenant", new(queue.Queue))
			read := func() {
				got, err := s.read(bytes.NewReader(make([]byte, 1000)), make([]byte, 10))
				require.NoError(t, err)
				require.Equal(t, 10, got)
			}
			l.set(true)
			time.AfterFunc(10*time.Millisecond, func() { l.set(false) })
			read()
			time.Sleep(pause)
			read()
			require.Equal(t, want, s.cost)
			s.close(net.ErrClosed)
			require.EqualValues(t, 20, l.taken)
		})
	}
}

// A halfPipe is a connection with the method CloseWrite.
type halfPipe struct {
	net.Conn
	closed int
}

func (p *halfPipe) CloseWrite() error { p.closed++; return nil }

// TestHijacked_hasCloseWriteOfItsConnection checks that a hijacked connection can close one
// direction if the one below can.
func TestHijacked_hasCloseWriteOfItsConnection(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	_, ok := hijacked(a, nil, new(duplex)).(closeWriter)
	require.False(t, ok)
	half := &halfPipe{Conn: a}
	require.NoError(t, hijacked(half, nil, new(duplex)).(closeWriter).CloseWrite())
	require.Equal(t, 1, half.closed)
}

// TestHijacked_closeEndsWaits closes a hijacked connection while a Read and a Write wait.
func TestHijacked_closeEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		go b.Write([]byte("message"))
		in, out := new(countingLimiter), new(countingLimiter)
		in.set(true)
		out.set(true)
		d := settings{queue: new(queue.Queue)}.duplex(t.Context(), in, out)
		c := hijacked(a, nil, d)
		ended := make(chan error, 2)
		for _, call := range []func([]byte) (int, error){c.Read, c.Write} {
			go func() {
				_, err := call(make([]byte, 7))
				ended <- err
			}()
		}
		time.Sleep(time.Second)
		begin := time.Now()
		require.NoError(t, c.Close())
		for range 2 {
			require.ErrorIs(t, <-ended, net.ErrClosed)
		}
		require.Equal(t, begin, time.Now())
		require.Zero(t, in.taken+out.taken)
	})
}
