package throttle

import "sync"

// A subGrant leads from the Decision of a composed limiter back to the limiters that
// granted: it keeps what each of them decided, so that each gets its own Decision
// back, unchanged.
//
// A trail serves one claim after another. Its turn tells them apart: a Decision
// carries the turn that it was made in as its Grant, and one whose turn is over
// leads nowhere. So the second Cancel of a claim does nothing, even if the trail
// serves another claim by then.
//
// A claim that never ends keeps its trail, and both become garbage together.
type subGrant struct {
	owner *subGrants
	parts []Decision

	mu         sync.Mutex // guards turn and calls; no limiter is called under it
	generation uint64     // moves on when the claim ends, so that it ends once
	users      int        // Cancel and Observe that still use parts
	ended      bool       // the claim has ended; the last of calls gives the trail back

	// Of a way, see lead:
	limiter  Limiter // who granted
	degraded bool    // its decisions are
}

// subGrants are the trails of one composed limiter. They never serve another: who a
// trail belongs to can be told from any Decision, however old.
type subGrants struct{ pool sync.Pool }

// get returns a trail with room for n parts.
func (h *subGrants) get(n int) *subGrant {
	if t, ok := h.pool.Get().(*subGrant); ok {
		return t
	}
	return &subGrant{owner: h, parts: make([]Decision, n)}
}

// owns reports whether d was granted along one of h.
func (h *subGrants) owns(d Decision) bool { return d.subGrant != nil && d.subGrant.owner == h }

// lookup returns the trail of d, to be left with leave. It is nil if d is none of
// h's, or has ended. Unless the claim goes on, enter ends it.
func (h *subGrants) lookup(d Decision, partial bool) *subGrant {
	if !h.owns(d) {
		return nil
	}
	t := d.subGrant
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation != d.Grant {
		return nil
	}
	if t.users++; !partial {
		t.generation++
		t.ended = true
	}
	return t
}

// attach returns d as the decision that t leads back from.
func (t *subGrant) attach(d Decision) Decision {
	d.subGrant, d.Grant = t, t.generation
	return d
}

// release ends what enter began. The last call of a claim that has ended makes t free for
// another claim.
func (t *subGrant) release() {
	t.mu.Lock()
	t.users--
	last := t.ended && t.users == 0
	if last {
		t.ended = false
	}
	t.mu.Unlock()
	if last {
		t.owner.pool.Put(t)
	}
}

// grantUncounted returns d, a refusal, as a grant that took nothing: its trail leads nowhere,
// and that it is t tells who granted it. Such a t is never taken.
func (t *subGrant) grantUncounted(d Decision) Decision {
	d.OK, d.OverLimit, d.Wait, d.subGrant = true, true, 0, t
	return d
}

// isUncounted reports whether d was made by grant.
func (t *subGrant) isUncounted(d Decision) bool { return d.subGrant == t }
