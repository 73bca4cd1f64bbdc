package throttle

import "time"

// An alarm wakes a Waiter at one instant. With the system clock it is one
// time.Timer that is reset; other clocks can only be asked for a channel.
type alarm struct {
	at    int64 // or never
	timer *time.Timer
	quit  chan struct{} // ends the goroutine that listens to another clock
}

// set moves the alarm of w to at.
func (a *alarm) set(w *Waiter, at int64) {
	switch {
	case at == a.at:
	case w.Clock != nil:
		a.listen(w, at)
	case at == never:
		a.at = at
		a.timer.Stop()
	case a.timer == nil:
		a.at = at
		a.timer = time.AfterFunc(time.Duration(at-w.now), w.tick)
	default:
		a.at = at
		a.timer.Reset(time.Duration(at - w.now))
	}
}

// listen waits for a clock that is not the system's. An alarm that comes too early
// is left as it is, since a channel cannot be taken back.
func (a *alarm) listen(w *Waiter, at int64) {
	if at > a.at && at != never {
		return
	}
	if a.quit != nil {
		close(a.quit)
		a.quit = nil
	}
	if a.at = at; at == never {
		return
	}
	quit := make(chan struct{})
	a.quit = quit
	after := w.Clock.After(time.Duration(at - w.now))
	go func() {
		select {
		case <-after:
			w.tick()
		case <-quit:
		}
	}()
}
