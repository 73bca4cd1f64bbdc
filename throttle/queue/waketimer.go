package queue

import "time"

// A wakeTimer calls Queue.onTimer at one instant. With the system clock it is a time.Timer
// that is reset; a throttle.Clock only provides a channel for each instant.
type wakeTimer struct {
	at    int64 // nanoseconds on Queue.time, or never
	timer *time.Timer
	stop  chan struct{} // ends the goroutine that waits for the channel of Queue.Clock
}

func (t *wakeTimer) set(q *Queue, at int64) {
	if at == t.at {
		return
	}
	if q.Clock != nil {
		t.setOnClock(q, at)
		return
	}
	switch t.at = at; {
	case at == never:
		t.timer.Stop()
	case t.timer == nil:
		t.timer = time.AfterFunc(time.Duration(at-q.now), q.onTimer)
	default:
		t.timer.Reset(time.Duration(at - q.now))
	}
}

// setOnClock moves the timer of a Queue with a Clock. A timer that fires before at is left as
// it is, since the channel of a Clock cannot be stopped.
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
