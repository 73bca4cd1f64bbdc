package throttletest

import (
	"sync"
	"time"
)

// clock shows the time it was set to.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	timers []timer
}

type timer struct {
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
	a := timer{c.now.Add(d), make(chan time.Time, 1)}
	c.timers = append(c.timers, a)
	c.fire()
	return a.c
}

// add moves the clock; d may be negative.
func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.fire()
}

// advanceTo moves the clock to t unless it is there already.
func (c *clock) advanceTo(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.now) {
		c.now = t
	}
	c.fire()
}

// fire sets off the alarms that are due.
func (c *clock) fire() {
	left := c.timers[:0]
	for _, a := range c.timers {
		if a.at.After(c.now) {
			left = append(left, a)
			continue
		}
		a.c <- c.now
	}
	c.timers = left
}
