package throttle

import "context"

// stand lets t wait in line.
func (w *Waiter) stand(ctx context.Context, t *Ticket, retry bool) error {
	s := w.seat(ctx, t)
	err := w.enter(s, retry)
	if err == nil {
		err = w.wait(ctx, s)
	}
	s.ticket, s.line = nil, nil
	w.seats.Put(s)
	return err
}

// enter puts s into its line. It is not inlined, so that its frame is gone from the
// stacks of those who wait.
//
//go:noinline
func (w *Waiter) enter(s *seat, retry bool) error {
	w.lock()
	err := w.join(s, retry)
	if w.Trace == nil || w.Trace.Parked == nil || err != nil || s.ticket.held != nil {
		w.unlock()
		return err
	}
	l := w.describe(s.line)
	w.unlock()
	w.tellParked(s, l)
	return nil
}

// tellParked calls Trace.Parked. If that panics, s leaves the line, as its caller
// does: else units would be granted to nobody.
func (w *Waiter) tellParked(s *seat, l Line) {
	told := false
	defer func() {
		if !told {
			_ = w.giveUp(context.Background(), s)
		}
	}()
	w.Trace.Parked(s.ticket, l)
	told = true
}

func (w *Waiter) seat(ctx context.Context, t *Ticket) *seat {
	s, ok := w.seats.Get().(*seat)
	if !ok {
		s = &seat{called: make(chan struct{}, 1)}
	}
	s.ticket, s.ends, s.stay = t, never, -1
	if deadline, ok := ctx.Deadline(); ok {
		s.ends = subSat(int64(deadline.Sub(w.born)), max(int64(t.Latency), 0))
	}
	return s
}

// call wakes the goroutine of s. Afterwards a seat that was granted or refused may be
// in use for another ticket.
func (s *seat) call() { s.called <- struct{}{} }

// wait returns when s was granted or refused, or when ctx ends. Whenever s is
// called and there is neither, it has a question to ask.
func (w *Waiter) wait(ctx context.Context, s *seat) error {
	for {
		select {
		case <-s.called:
		case <-ctx.Done():
			return w.giveUp(ctx, s)
		}
		if s.ticket.held != nil {
			return s.ticket.outcome()
		}
		if done, err := w.answer(ctx, s); done {
			return err
		}
	}
}

// giveUp takes s out of its line, as ctx has ended.
func (w *Waiter) giveUp(ctx context.Context, s *seat) error {
	w.lock()
	l := s.line
	called := s.ticket.held != nil || l.asking == s
	if s.ticket.held == nil {
		w.pull(s)
		if called {
			l.asking = nil
			w.resume(l)
		}
	}
	w.unlock()
	if called {
		<-s.called
	}
	if s.ticket.held != nil { // too late: the units are there, but nobody to use them
		if err := s.ticket.outcome(); err != nil {
			return err
		}
		w.Cancel(ctx, s.ticket)
	}
	return context.Cause(ctx)
}

// outcome returns nil if t was granted, else why not.
func (t *Ticket) outcome() error {
	err := t.held.err
	if err != nil {
		t.end()
	}
	return err
}

// refuse sends s home with err.
func (w *Waiter) refuse(s *seat, err error) {
	w.pull(s)
	g := grants.Get().(*grant)
	g.err, s.ticket.held = err, g
	s.call()
}
