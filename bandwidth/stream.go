package bandwidth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A stream paces the bytes of one body, or of one direction of a connection.
//
// Its bytes are claimed in chunks. A stream that has to wait again and again claims more than it needs for
// the moment, up to one chunk, and uses the rest for its next bytes. Without that, streams
// with small reads would get a smaller share of the limit than those with large ones,
// because the Queue grants waiting streams in turn. The rest is returned when the stream
// ends, and when it was not used for the time that the limit takes to restore two chunks.
type stream struct {
	limiter throttle.Limiter
	key     string
	tenant  string
	queue   *queue.Queue
	onWait  func(queue.Position) error // called when a claim begins to wait; nil: not called
	waits   waits

	closed atomic.Bool  // close was called
	debt   atomic.Int64 // bytes that read returned before they were granted

	// op guards the fields below. It is held while a claim waits, so that claims are made in
	// order; close does not wait for it.
	op       lock
	chunk    int64         // most bytes to claim at one time; 0: nothing was claimed yet
	restored time.Duration // in which the limit restores a chunk; 0: not known
	burst    int64         // throttle.Decision.Limit from which chunk was computed; -1: none yet
	per      time.Duration // Decision.Per, as burst
	ticket   queue.Ticket  // granted until its bytes were used
	unused   int64         // bytes of ticket that were granted and not used
	cost     int64         // of the latest claim
	waited   bool          // the latest claim had to wait
	granted  time.Time     // when the latest claim was granted, if it or the one before had to wait
}

func newStream(ctx context.Context, l throttle.Limiter, key, tenant string, q *queue.Queue) *stream {
	return &stream{limiter: l, key: key, tenant: tenant, queue: q, waits: waits{parent: ctx}, op: newLock(), burst: -1}
}

// read reads from r into p, and returns when the bytes are granted.
//
// If a deadline ends the wait, the bytes are returned nevertheless, and granted before the
// next read: a stream can be used after a deadline, so they must not be lost. If the wait
// fails for another reason, the bytes are lost with the stream.
func (s *stream) read(r io.Reader, p []byte) (int, error) {
	if len(p) == 0 {
		return r.Read(p)
	}
	if missing, err := s.take(0); err != nil {
		s.debt.Store(missing)
		return 0, err
	}
	size, err := s.size(len(p))
	if err != nil {
		return 0, err
	}
	n, err := r.Read(p[:size])
	if n <= 0 {
		return n, err
	}
	missing, waitErr := s.take(n)
	s.settle(0)
	if errors.Is(waitErr, os.ErrDeadlineExceeded) {
		s.debt.Store(missing)
	} else if waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

// writePaced calls write with the chunks of p, each when it is granted.
func writePaced[T string | []byte](s *stream, p T, write func(T) (int, error)) (n int, err error) {
	if len(p) == 0 {
		return write(p)
	}
	for len(p) > 0 {
		size, err := s.size(len(p))
		if err != nil {
			return n, err
		}
		if _, err := s.take(size); err != nil {
			return n, err
		}
		m, err := write(p[:size])
		m = min(max(m, 0), size)
		s.settle(size - m)
		n += m
		if err == nil && m < size {
			err = io.ErrShortWrite
		}
		if err != nil {
			return n, err
		}
		p = p[m:]
	}
	return n, nil
}

// size returns how many of n bytes to pass on as the next chunk.
func (s *stream) size(n int) (int, error) {
	s.op.lock()
	defer s.unlock()
	if s.chunk == 0 {
		if err := s.ask(); err != nil {
			return 0, err
		}
	}
	return int(min(int64(n), s.chunk)), nil
}

// ask asks the limiter what it grants at one time. A limiter that may block is not asked.
func (s *stream) ask() error {
	if !s.limiter.Traits().NonBlocking {
		s.chunk = firstChunk
		return nil
	}
	ctx, err := s.waits.context()
	if err != nil {
		return err
	}
	d, err := s.limiter.Reserve(ctx, throttle.Claim{Key: s.key, Now: s.now(), DryRun: true, Waits: true})
	if err != nil {
		return err
	}
	s.learn(d)
	return nil
}

// learn computes chunk from a decision. If its numbers are those of before, a chunk that
// onError has made smaller stays.
func (s *stream) learn(d throttle.Decision) {
	if d.Limit == s.burst && d.Per == s.per {
		return
	}
	s.burst, s.per = d.Limit, d.Per
	s.chunk, s.restored = chunkOf(d.Limit, d.Per)
}

// take waits until n bytes are granted, and those of an earlier read that was not. The
// caller passes them on and then calls settle. If the wait fails, take returns how many of
// them are missing.
func (s *stream) take(n int) (missing int64, err error) {
	left := int64(n) + s.debt.Load()
	if left == 0 {
		return 0, nil
	}
	s.op.lock()
	defer s.unlock()
	if (s.waited || s.unused > 0) && s.now().Sub(s.granted) > max(2*s.restored, 4*chunkTime) {
		s.returnUnused()
		s.waited = false
	}
	for left > s.unused {
		left -= s.unused
		s.unused = 0
		s.endTicket()
		if err := s.claim(left); err != nil {
			return left, err
		}
	}
	s.unused -= left
	s.debt.Store(0)
	return 0, nil
}

// settle ends a take of which the last n bytes were not passed on.
func (s *stream) settle(n int) {
	s.op.lock()
	defer s.unlock()
	s.unused += int64(n)
	if s.unused == 0 || n > 0 {
		s.returnUnused()
	}
}

// claim waits until the limiter grants n bytes, or a part of them.
func (s *stream) claim(n int64) error {
	for {
		ctx, err := s.waits.context()
		if err != nil {
			return err
		}
		cost := s.nextCost(n)
		s.ticket = queue.Ticket{Tenant: s.tenant, Demands: s.ticket.Demands[:0]}
		s.ticket.Add(throttle.Demand{Limiter: s.limiter, Key: s.key, Cost: cost})
		err = s.queue.WaitHooks(ctx, &s.ticket, queue.Hooks{Queued: s.onWait})
		if err == nil {
			s.onGrant(cost)
			return nil
		}
		if retry, err := s.onError(cost, err); !retry {
			return err
		}
	}
}

// nextCost returns the cost of the next claim for n bytes: twice that of the latest one if
// that had to wait.
func (s *stream) nextCost(n int64) int64 {
	if s.waited {
		n = max(n, 2*s.cost)
	}
	return min(n, s.chunk)
}

func (s *stream) onGrant(cost int64) {
	waited := s.ticket.Waited() > 0
	if waited || s.waited {
		s.granted = s.now()
	}
	s.cost, s.unused, s.waited = cost, cost, waited
	if d, ok := s.ticket.Decision(0); ok {
		s.learn(d)
	}
}

// onError returns the error of a claim, or reports that it must be repeated with a lower
// cost because the limiter can never grant it.
func (s *stream) onError(cost int64, err error) (retry bool, _ error) {
	var rejected *throttle.RejectedError
	switch {
	case !errors.As(err, &rejected):
		return false, err
	case rejected.Decision.Wait != throttle.Forever:
		return false, fmt.Errorf("bandwidth: %d B were not granted: %w", cost, err)
	case cost == 1:
		return false, neverGranted(err)
	}
	s.chunk, s.restored = chunkOf(rejected.Decision.Limit, rejected.Decision.Per)
	s.chunk = min(s.chunk, cost/2)
	return true, nil
}

// endTicket ends the claim of ticket, of which all units were used.
func (s *stream) endTicket() {
	s.queue.Report(s.waits.parent, &s.ticket, throttle.Feedback{})
}

// returnUnused ends the claim of ticket and returns the units that were not used.
func (s *stream) returnUnused() {
	if s.unused > 0 {
		s.ticket.Settle(0, s.cost-s.unused)
		s.unused = 0
	}
	s.endTicket()
}

// close ends a wait that is under way with cause, and returns units that were not used.
// Further waits fail with the same cause.
func (s *stream) close(cause error) {
	s.waits.end(cause)
	s.closed.Store(true)
	s.returnIfClosed()
}

// unlock releases op.
func (s *stream) unlock() {
	s.op.unlock()
	s.returnIfClosed()
}

// returnIfClosed returns units that were not used if s is closed. If op is held, unlock will do
// so.
func (s *stream) returnIfClosed() {
	if s.closed.Load() && s.op.tryLock() {
		s.returnUnused()
		s.op.unlock()
	}
}

// now reads the clock of the queue.
func (s *stream) now() time.Time { return throttle.ClockOr(s.queue.Clock).Now() }

// A lock is a mutex that may be held while a stream waits: unlike for a sync.Mutex, a
// testing/synctest bubble advances its clock while goroutines wait for a lock.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) lock()   { l <- struct{}{} }
func (l lock) unlock() { <-l }

// tryLock reports whether it has locked l.
func (l lock) tryLock() bool {
	select {
	case l <- struct{}{}:
		return true
	default:
		return false
	}
}
