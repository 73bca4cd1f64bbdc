package throttle

import "sync"

// A trail leads from the Decision of a composed limiter back to the limiters that
// granted: it keeps what each of them decided, so that each gets its own Decision
// back, unchanged.
//
// A trail serves one claim after another. Its turn tells them apart: a Decision
// carries the turn that it was made in as its Grant, and one whose turn is over
// leads nowhere. So the second Cancel of a claim does nothing, even if the trail
// serves another claim by then.
//
// A claim that never ends keeps its trail, and both become garbage together.
type trail struct {
	home  *trails
	mu    sync.Mutex // held while parts hear of an end, so that a claim ends once
	turn  uint64
	parts []Decision

	// Of a way, see lead:
	to       Limiter // who granted
	degraded bool    // its decisions are
}

// trails are the trails of one composed limiter. They never serve another: who a
// trail belongs to can be told from any Decision, however old.
type trails struct{ idle sync.Pool }

// take returns a trail with room for n parts.
func (h *trails) take(n int) *trail {
	if t, ok := h.idle.Get().(*trail); ok {
		return t
	}
	return &trail{home: h, parts: make([]Decision, n)}
}

// made reports whether d was granted along one of h.
func (h *trails) made(d Decision) bool { return d.trail != nil && d.trail.home == h }

// enter returns the trail of d, to be left with leave. It is nil if d is none of
// h's, or has ended.
func (h *trails) enter(d Decision) *trail {
	if !h.made(d) {
		return nil
	}
	t := d.trail
	t.mu.Lock()
	if t.turn != d.Grant {
		t.mu.Unlock()
		return nil
	}
	return t
}

// mark returns d as the decision that t leads back from.
func (t *trail) mark(d Decision) Decision {
	d.trail, d.Grant = t, t.turn
	return d
}

// leave ends what enter began, and the claim itself unless it goes on.
func (t *trail) leave(goesOn bool) {
	if goesOn {
		t.mu.Unlock()
		return
	}
	t.turn++
	t.mu.Unlock()
	t.home.idle.Put(t)
}

// grant returns d, a refusal, as a grant that took nothing: its trail leads nowhere,
// and that it is t tells who granted it. Such a t is never taken.
func (t *trail) grant(d Decision) Decision {
	d.OK, d.Over, d.Wait, d.trail = true, true, 0, t
	return d
}

// granted reports whether d was made by grant.
func (t *trail) granted(d Decision) bool { return d.trail == t }
