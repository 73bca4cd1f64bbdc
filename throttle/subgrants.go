package throttle

import (
	"context"
	"sync"
)

// SubGrants lets a limiter that is made of others find the Decisions of those others when
// one of its own Decisions comes back in Cancel or Observe. A limiter that has to remember
// more of a grant than Decision.Grant holds can use it as well. The zero SubGrants is ready
// to use. It must not be copied.
//
// There are two ways to use it. Wrap and Unwrap keep the Decisions of all parts of a claim,
// in an object from a pool for each claim. Inner is for limiters that ask one of several,
// such as one per key. It needs no object for a claim unless the limiter that granted is
// itself composed.
//
// A Decision of one SubGrants leads nowhere in another. Once a claim has ended its Decision
// leads nowhere either, so a second Cancel of it does nothing. A claim that never ends
// becomes garbage together with its Decision.
type SubGrants struct{ pool sync.Pool }

// Wrap returns d, a grant, as a Decision from which parts can be found again. They are
// copied; there must be as many of them each time. Wrap replaces d.Grant.
func (h *SubGrants) Wrap(d Decision, parts []Decision) Decision {
	t := h.get(len(parts))
	copy(t.parts, parts)
	return t.attach(d)
}

// Unwrap calls f with the parts of d, unless d was not wrapped by h or its claim has ended.
// If partial is false, the claim ends with this call. f must not retain parts.
func (h *SubGrants) Unwrap(d Decision, partial bool, f func(parts []Decision)) {
	if t := h.lookup(d, partial); t != nil {
		defer t.release()
		f(t.parts)
	}
}

// Owns reports whether d is a grant that was wrapped by h or made by an Inner of h.
func (h *SubGrants) Owns(d Decision) bool { return d.subGrant != nil && d.subGrant.owner == h }

// Inner returns an Inner that asks l. If degraded is true, its decisions are Degraded.
func (h *SubGrants) Inner(l Limiter, degraded bool) Inner {
	return Inner{subGrant{owner: h, limiter: l, degraded: degraded}}
}

// Cancel hands d, made by an Inner of h, to the limiter that granted it. It does nothing
// if h does not own d.
func (h *SubGrants) Cancel(ctx context.Context, c Claim, d Decision) {
	if !h.Owns(d) {
		return
	}
	if t := d.subGrant; t.parts == nil {
		t.limiter.Cancel(ctx, c, t.unwrap(d))
	} else if t := h.lookup(d, false); t != nil {
		defer t.release()
		t.limiter.Cancel(ctx, c, t.parts[0])
	}
}

// Observe hands d and f to the limiter that granted d, as Cancel does.
func (h *SubGrants) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if !h.Owns(d) {
		return
	}
	if t := d.subGrant; t.parts == nil {
		Observe(ctx, t.limiter, c, t.unwrap(d), f)
	} else if t := h.lookup(d, f.Partial); t != nil {
		defer t.release()
		Observe(ctx, t.limiter, c, t.parts[0], f)
	}
}

// An Inner asks one limiter on behalf of a limiter that chooses among several. Its grants
// lead back to that limiter by Cancel and Observe of the SubGrants that it belongs to,
// whatever the choice would be by then. An Inner must not be copied after its first Reserve.
type Inner struct{ grant subGrant }

// Limiter returns the limiter that i asks.
func (i *Inner) Limiter() Limiter { return i.grant.limiter }

// Reserve asks the limiter.
func (i *Inner) Reserve(ctx context.Context, c Claim) (Decision, error) {
	d, err := i.grant.limiter.Reserve(ctx, c)
	if err != nil {
		return Decision{}, err
	}
	return i.grant.wrap(d, c.DryRun), nil
}

// A subGrant leads from the Decision of a composed limiter to the Decisions of the limiters
// that granted, so that each of them gets its own back, unchanged.
//
// One with parts belongs to one claim, and serves other claims after it has ended. The
// generation distinguishes them: a Decision carries as its Grant the generation in which
// it was made, and leads nowhere in a later one. A claim that never ends keeps its subGrant,
// and both become garbage together.
//
// One without parts is that of an Inner and belongs to the limiter that granted, not to a
// claim. So a claim that never ends costs nothing.
type subGrant struct {
	owner *SubGrants
	parts []Decision

	mu         sync.Mutex // guards generation, users and ended; no limiter is called under it
	generation uint64     // increases when the claim ends, so that it ends once
	users      int        // running calls of Cancel and Observe that still use parts
	ended      bool       // the claim has ended; the last of users returns the subGrant to the pool

	// Of an Inner, and of the claims of one:
	limiter  Limiter // the limiter that granted
	degraded bool    // its decisions are
}

// get returns a subGrant with room for n parts.
func (h *SubGrants) get(n int) *subGrant {
	if t, ok := h.pool.Get().(*subGrant); ok {
		return t
	}
	return &subGrant{owner: h, parts: make([]Decision, n)}
}

// lookup returns the subGrant of d; call release after use. It is nil if h does not own d,
// or its claim has ended. Unless partial is true, lookup ends the claim.
func (h *SubGrants) lookup(d Decision, partial bool) *subGrant {
	if !h.Owns(d) {
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

// release ends what lookup began. The last call of a claim that has ended makes t free for
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

// wrap returns d, made by t.limiter, as a Decision of t.owner. Only a Decision that has a
// subGrant of its own, or whose Degraded could not be restored, gets a subGrant for itself.
func (t *subGrant) wrap(d Decision, dry bool) Decision {
	switch {
	case !d.OK || dry:
		d.subGrant = nil
	case d.subGrant == nil && !(d.Degraded && t.degraded):
		d.subGrant = t
	default:
		s := t.owner.get(1)
		s.limiter, s.parts[0] = t.limiter, d
		d = s.attach(d)
	}
	d.Degraded = d.Degraded || t.degraded
	return d
}

// unwrap returns d as t.limiter made it. t has no parts.
func (t *subGrant) unwrap(d Decision) Decision {
	d.subGrant = nil
	if t.degraded {
		d.Degraded = false
	}
	return d
}

// grantUncounted returns d, a refusal, as a grant that took nothing. Its subGrant has no
// owner and leads nowhere; that it is t shows which limiter granted it.
func (t *subGrant) grantUncounted(d Decision) Decision {
	d.OK, d.OverLimit, d.Wait, d.subGrant = true, true, 0, t
	return d
}

// isUncounted reports whether d was made by t.grantUncounted.
func (t *subGrant) isUncounted(d Decision) bool { return d.subGrant == t }
