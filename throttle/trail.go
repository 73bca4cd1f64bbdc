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
	parts []Decision

	mu    sync.Mutex // guards turn and calls; no limiter is called under it
	turn  uint64     // moves on when the claim ends, so that it ends once
	calls int        // Cancel and Observe that still use parts
	ended bool       // the claim has ended; the last of calls gives the trail back

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
// h's, or has ended. Unless the claim goes on, enter ends it.
func (h *trails) enter(d Decision, goesOn bool) *trail {
	if !h.made(d) {
		return nil
	}
	t := d.trail
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turn != d.Grant {
		return nil
	}
	if t.calls++; !goesOn {
		t.turn++
		t.ended = true
	}
	return t
}

// mark returns d as the decision that t leads back from.
func (t *trail) mark(d Decision) Decision {
	d.trail, d.Grant = t, t.turn
	return d
}

// leave ends what enter began. The last call of a claim that has ended makes t free for
// another claim.
func (t *trail) leave() {
	t.mu.Lock()
	t.calls--
	last := t.ended && t.calls == 0
	if last {
		t.ended = false
	}
	t.mu.Unlock()
	if last {
		t.home.idle.Put(t)
	}
}

// grant returns d, a refusal, as a grant that took nothing: its trail leads nowhere,
// and that it is t tells who granted it. Such a t is never taken.
func (t *trail) grant(d Decision) Decision {
	d.OK, d.Over, d.Wait, d.trail = true, true, 0, t
	return d
}

// granted reports whether d was made by grant.
func (t *trail) granted(d Decision) bool { return d.trail == t }
