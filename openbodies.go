package heed

import (
	"sync"
	"time"
)

// abandonedAfter is the longest time from the end of a context until the claim of a
// body that is neither read nor closed has ended.
const abandonedAfter = time.Second

// openBodies lists the bodies that hold a claim and whose contexts can end. A timer
// that looks at all of them while there are any takes the place of a
// context.AfterFunc for each, which allocates more than the rest of the wrapper.
type openBodies struct {
	mu      sync.Mutex
	bodies  []*bodyEOFSignal
	timer   *time.Timer // nil: nothing was listed yet
	running bool        // the timer fires within abandonedAfter
}

// add lists b.
func (o *openBodies) add(b *bodyEOFSignal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bodies = append(o.bodies, b)
	b.index = int32(len(o.bodies))
	if o.running {
		return
	}
	o.running = true
	if o.timer == nil {
		o.timer = time.AfterFunc(abandonedAfter, o.sweep)
	} else {
		o.timer.Reset(abandonedAfter)
	}
}

// remove takes b from the list. It has no effect if b is not listed.
func (o *openBodies) remove(b *bodyEOFSignal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b.index == 0 {
		return
	}
	last := len(o.bodies) - 1
	moved := o.bodies[last]
	o.bodies[last] = nil
	o.bodies = o.bodies[:last]
	if moved != b {
		o.bodies[b.index-1] = moved
		moved.index = b.index
	}
	b.index = 0
	if last == 0 && cap(o.bodies) > 1024 {
		o.bodies = nil // of a time with many
	}
}

// sweep ends the claims of bodies whose contexts have ended. Limiters run on
// goroutines of their own, so that one that hangs delays no other.
func (o *openBodies) sweep() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.bodies {
		if b.ctx.Err() != nil {
			go b.end()
		}
	}
	if o.running = len(o.bodies) > 0; o.running {
		o.timer.Reset(abandonedAfter)
	}
}
