package quota

import (
	"reflect"
	"slices"
	"sync"

	"github.com/heed-go/heed/throttle"
)

// A waker wakes the callers that wait for quotas of a Tracker. A queue.Queue is one.
type waker = interface{ Wake() }

// wakers are the wakers of a Tracker.
type wakers struct {
	mu  sync.Mutex
	all []waker // without duplicates; guarded by mu
}

// Notify registers w, usually the queue whose callers wait for limits of t. t calls Wake when
// requests may be sent earlier than it had stated: after an Update of another process, and
// after Forget. If w has a method Renew(throttle.Limiter), t calls it when Demand may return
// another Limiter for requests that wait for this one. A heed.Transport calls Notify for its
// Queue. Nil has no effect, and each w is registered once.
//
// t keeps w. If w has a method Alive() bool, t drops w when Alive returns false; a type that
// refers to a queue by a weak pointer can have it.
func (t *Tracker) Notify(w interface{ Wake() }) {
	if w == nil {
		return
	}
	t.once.Do(t.init)
	obsolete := slices.DeleteFunc(t.wakers.list(), isAlive) // Alive is called without a lock
	t.wakers.mu.Lock()
	defer t.wakers.mu.Unlock()
	t.wakers.all = slices.DeleteFunc(t.wakers.all, func(o waker) bool {
		return equal(o, w) || slices.ContainsFunc(obsolete, func(d waker) bool { return equal(o, d) })
	})
	t.wakers.all = append(t.wakers.all, w)
}

// wake calls all wakers. The caller holds no lock.
func (t *Tracker) wake() {
	for _, w := range t.wakers.list() {
		w.Wake()
	}
}

// replace records that requests which wait for q may have another quota now. The caller holds
// ep.mu, and calls renewWaits when it holds no lock.
func (ep *endpoint) replace(q throttle.Limiter) {
	ep.replaced = append(ep.replaced, q)
	ep.hasReplaced.Store(true)
}

// renewWaits lets the callers that wait for replaced quotas ask for their demands again. The
// caller holds no lock.
func (ep *endpoint) renewWaits() {
	if !ep.hasReplaced.Load() {
		return
	}
	ep.mu.Lock()
	replaced := ep.replaced
	ep.replaced = nil
	ep.hasReplaced.Store(false)
	ep.mu.Unlock()
	for _, w := range ep.tracker.wakers.list() {
		if r, ok := w.(interface{ Renew(throttle.Limiter) }); ok {
			for _, q := range replaced {
				r.Renew(q)
			}
		}
	}
}

// list returns a copy of all.
func (w *wakers) list() []waker {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// isAlive reports whether w has no method Alive, or that returns true.
func isAlive(w waker) bool {
	a, ok := w.(interface{ Alive() bool })
	return !ok || a.Alive()
}

// equal reports whether a and b are equal. Values that cannot be compared are not.
func equal(a, b waker) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
