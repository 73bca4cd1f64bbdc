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
	asking := err == nil && s.line.asking == s
	if err != nil {
		s.ticket.waited = 0
	}
	over := err != nil || !asking && s.ticket.held != nil
	c := w.claim(s.ticket, w.now)
	w.unlock()
	if over {
		return err
	}
	left := true
	defer func() {
		if left { // a limiter or Parked panicked: the caller leaves, and so does s
			_ = w.giveUp(context.Background(), s)
		}
	}()
	if !asking {
		w.foresee(s, c)
	}
	w.tellParked(s)
	left = false
	return nil
}

// tellParked calls Trace.Parked if s waits.
func (w *Waiter) tellParked(s *seat) {
	if w.Trace == nil || w.Trace.Parked == nil {
		return
	}
	w.lock()
	waits := s.line.asking == s || s.ticket.held == nil
	var l Line
	if waits {
		l = w.describe(s.line)
	}
	w.unlock()
	if waits {
		w.Trace.Parked(s.ticket, l)
	}
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
		if done, err := w.askFar(ctx, s); done {
			return err
		}
	}
}

// giveUp takes s out of its line, as ctx has ended.
func (w *Waiter) giveUp(ctx context.Context, s *seat) error {
	w.lock()
	l := s.line
	asking := l.asking == s
	called := asking || s.ticket.held != nil
	switch {
	case asking && l.local:
		l.gaveUp = true // another goroutine asks for s, and calls it then
	case asking || !called:
		w.pull(s)
		if asking {
			l.asking = nil
			w.resume(l)
		}
	}
	w.unlock()
	if called {
		<-s.called
	}
	if s.ticket.held != nil { // too late: the units are there, but nobody to use them
		if err := s.ticket.outcome(); err == errGaveUp {
			return context.Cause(ctx)
		} else if err != nil {
			return err
		}
		w.Cancel(ctx, s.ticket)
	}
	return context.Cause(ctx)
}

// outcome returns nil if t was granted, else why not. A panic of a limiter goes on here.
func (t *Ticket) outcome() error {
	err := t.held.err
	if err != nil {
		t.end()
	}
	if p, ok := err.(*panicError); ok {
		panic(p.value)
	}
	return err
}

// refuse sends s home with err.
func (w *Waiter) refuse(s *seat, err error) {
	w.pull(s)
	s.fail(err)
}

// fail wakes s, which has left its line, with err.
func (s *seat) fail(err error) {
	g := grants.Get().(*grant)
	g.err, s.ticket.held = err, g
	s.call()
}
