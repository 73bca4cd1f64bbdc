package scenario

import (
	"sync"
	"time"
)

// Counts counts what an API receives. It is safe for concurrent use.
type Counts struct {
	mu        sync.Mutex
	sent      map[string]int // by call
	effects   map[string]int // by call
	throttled int
	signed    bool
	oldest    time.Duration
}

// Received counts a request of a call. It returns the number of requests of that call so far.
func (c *Counts) Received(call string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return add(&c.sent, call)
}

// Throttled counts a request that is rejected because of a limit.
func (c *Counts) Throttled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.throttled++
}

// Done counts that the API did what a call asks for.
func (c *Counts) Done(call string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.effects, call)
}

// Signed counts a request whose signature has an age.
func (c *Counts) Signed(age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.signed, c.oldest = true, max(c.oldest, age)
}

// result returns the part of a Result that the server knows.
func (c *Counts) result() (r Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.sent {
		r.Sent += n
		r.MostSends = max(r.MostSends, n)
	}
	for _, n := range c.effects {
		r.Duplicated += n - 1
	}
	r.Throttled = c.throttled
	if c.signed {
		seconds := c.oldest.Seconds()
		r.OldestSignature = &seconds
	}
	return r
}

// add adds one to the number of key and returns it.
func add(m *map[string]int, key string) int {
	if *m == nil {
		*m = make(map[string]int)
	}
	(*m)[key]++
	return (*m)[key]
}
