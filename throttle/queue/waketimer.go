package queue

import "time"

// A wakeTimer wakes a Queue at one instant. With the system clock it is one
// time.Timer that is reset; other clocks can only be asked for a channel.
type wakeTimer struct {
	at    int64 // or never
	timer *time.Timer
	stop  chan struct{} // ends the goroutine that listens to another clock
}

// set moves the alarm of w to at.
func (t *wakeTimer) set(q *Queue, at int64) {
	switch {
	case at == t.at:
	case q.Clock != nil:
		t.setOnClock(q, at)
	case at == never:
		t.at = at
		t.timer.Stop()
	case t.timer == nil:
		t.at = at
		t.timer = time.AfterFunc(time.Duration(at-q.now), q.onTimer)
	default:
		t.at = at
		t.timer.Reset(time.Duration(at - q.now))
	}
}

// setOnClock waits for a clock that is not the system's. An alarm that comes too early
// is left as it is, since a channel cannot be taken back.
func (t *wakeTimer) setOnClock(q *Queue, at int64) {
	if at > t.at && at != never {
		return
	}
	if t.stop != nil {
		close(t.stop)
		t.stop = nil
	}
	if t.at = at; at == never {
		return
	}
	stop := make(chan struct{})
	t.stop = stop
	after := q.Clock.After(time.Duration(at - q.now))
	go func() {
		select {
		case <-after:
			q.onTimer()
		case <-stop:
		}
	}()
}
