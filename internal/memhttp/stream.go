package memhttp

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// maxBuffered is the maximum number of bytes in a stream, close to the buffer size of a
// socket: a writer can be ahead of its reader, but only by this number.
const maxBuffered = 64 << 10

// A stream carries bytes in one direction.
//
// Both ends wait on one condition variable, which counts as durably blocked in a bubble.
// Waiting for the mutex does not, so the mutex is never held during a wait.
type stream struct {
	mu       sync.Mutex
	changed  sync.Cond
	data     []byte
	readErr  error // returned to a reader when the data is used up; nil: the reader waits
	writeErr error // returned to a writer; nil: it may write

	reader, writer deadline
}

// A deadline determines whether one end may still wait.
type deadline struct {
	timer   *time.Timer // nil: no timer is running
	expired bool
}

func newStream() *stream {
	s := &stream{}
	s.changed.L = &s.mu
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.reader.expired:
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case len(s.data) > 0:
			n := copy(p, s.data)
			s.data = s.data[n:]
			s.changed.Broadcast()
			return n, nil
		case s.readErr != nil:
			return 0, s.readErr
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.writer.expired:
			return n, os.ErrDeadlineExceeded
		case s.writeErr != nil:
			return n, s.writeErr
		}
		k := min(len(p)-n, maxBuffered-len(s.data))
		s.data = append(s.data, p[n:n+k]...)
		s.changed.Broadcast()
		if n += k; n == len(p) {
			return n, nil
		}
		s.changed.Wait()
	}
}

// closeRead closes the reading side of s: remaining data is discarded, and the writer gets
// err from now on.
func (s *stream) closeRead(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data, s.readErr = nil, net.ErrClosed
	if s.writeErr == nil {
		s.writeErr = err
	}
	s.changed.Broadcast()
}

// closeWrite closes the writing side of s: the reader gets err after the remaining data, or
// immediately if err is not io.EOF.
func (s *stream) closeWrite(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writeErr = net.ErrClosed
	if s.readErr == nil || s.readErr == io.EOF {
		s.readErr = err
	}
	if err != io.EOF {
		s.data = nil
	}
	s.changed.Broadcast()
}

// setDeadline sets the deadline d to t. A zero t means no deadline.
func (s *stream) setDeadline(d *deadline, t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	d.timer, d.expired = nil, false
	if !t.IsZero() {
		s.startTimer(d, time.Until(t))
	}
	s.changed.Broadcast()
}

// startTimer makes d expire after wait. A timer that fires although it was stopped has no
// effect, because another one has replaced it.
func (s *stream) startTimer(d *deadline, wait time.Duration) {
	if wait <= 0 {
		d.expired = true
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.timer == timer {
			d.expired = true
			s.changed.Broadcast()
		}
	})
	d.timer = timer
}
