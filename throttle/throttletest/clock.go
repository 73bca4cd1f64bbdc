package throttletest

import (
	"sync"
	"time"
)

// clock shows the time to which it was set.
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

// After implements throttle.Clock. Limiters do not need it to decide.
func (c *clock) After(d time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := timer{c.now.Add(d), make(chan time.Time, 1)}
	c.timers = append(c.timers, a)
	c.fire()
	return a.c
}

// add moves the clock by d, which may be negative.
func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.fire()
}

// advanceTo moves the clock to t if t is later.
func (c *clock) advanceTo(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.now) {
		c.now = t
	}
	c.fire()
}

// fire fires the timers that are due.
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
