package throttletest

import (
	"sync"
	"time"
)

// clock shows the time it was set to.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	alarms []alarm
}

type alarm struct {
	at time.Time
	c  chan time.Time
}

// Now implements throttle.Clock.
func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After implements throttle.Clock. A Limiter that decides does not need it.
func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := alarm{c.now.Add(d), make(chan time.Time, 1)}
	c.alarms = append(c.alarms, a)
	c.ring()
	return a.c
}

// add moves the clock; d may be negative.
func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.ring()
}

// reach moves the clock to t unless it is there already.
func (c *clock) reach(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.now) {
		c.now = t
	}
	c.ring()
}

// ring sets off the alarms that are due.
func (c *clock) ring() {
	left := c.alarms[:0]
	for _, a := range c.alarms {
		if a.at.After(c.now) {
			left = append(left, a)
			continue
		}
		a.c <- c.now
	}
	c.alarms = left
}
