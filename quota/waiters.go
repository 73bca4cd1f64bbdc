package quota

import (
	"slices"
	"sync"
	weakly "weak"

	"github.com/heed-go/heed/throttle/queue"
)

// waiters are the queues whose callers wait for quotas of a Tracker.
type waiters struct {
	mu  sync.Mutex
	all []weakly.Pointer[queue.Queue]
}

// Notify registers w, whose waiters the Tracker wakes when requests may be sent earlier than
// it had stated: after an Update of another process, and after Forget. A heed.Transport calls
// Notify for its Queue.
func (t *Tracker) Notify(w *queue.Queue) {
	t.once.Do(t.init)
	p := weakly.Make(w)
	t.waiters.mu.Lock()
	defer t.waiters.mu.Unlock()
	t.waiters.all = slices.DeleteFunc(t.waiters.all, func(o weakly.Pointer[queue.Queue]) bool { return o == p || o.Value() == nil })
	t.waiters.all = append(t.waiters.all, p)
}

func (t *Tracker) wake() {
	t.waiters.mu.Lock()
	all := slices.Clone(t.waiters.all)
	t.waiters.mu.Unlock()
	for _, p := range all {
		if w := p.Value(); w != nil {
			w.Wake()
		}
	}
}
