package throttle

import (
	"context"
	"sync"
)

// SubGrants lets a limiter that is composed of others find the Decisions of those others
// when one of its own Decisions is passed to Report. The zero SubGrants is ready to use. It
// must not be copied.
//
// Wrap and Unwrap keep the Decisions of all parts of a claim in a pooled object for each
// claim. Inner is for limiters that ask one of several, such as one per key. It needs no
// object for a claim unless the limiter that granted is itself composed.
//
// A SubGrants ignores Decisions of another SubGrants and those whose claim has ended, so a
// second Report does nothing. A claim that never ends is collected with its Decision.
type SubGrants struct{ pool sync.Pool }

// Wrap returns d, a grant, as a Decision from which Unwrap finds parts. The parts are
// copied; their number must be the same in all calls. Wrap replaces d.Grant.
func (h *SubGrants) Wrap(d Decision, parts []Decision) Decision {
	t := h.get(len(parts))
	copy(t.parts, parts)
	return t.attach(d)
}

// Unwrap calls f with the parts of d, unless d was not wrapped by h or its claim has ended.
// Unless state is Ongoing, the claim ends with this call. f must not retain parts.
func (h *SubGrants) Unwrap(d Decision, state State, f func(parts []Decision)) {
	if t := d.subGrant; h.Owns(d) && t.use(d.Grant, state) {
		defer t.release(d.Grant)
		f(t.parts)
	}
}

// Owns reports whether d is a grant that was wrapped by h or made by an Inner of h.
func (h *SubGrants) Owns(d Decision) bool { return d.subGrant != nil && d.subGrant.owner == h }

// Inner returns a Limiter that asks l on behalf of a limiter that chooses among several. Its
// decisions are Degraded if degraded is true. Pass its grants to Report of h.
func (h *SubGrants) Inner(l Limiter, degraded bool) Limiter {
	return &inner{subGrant{owner: h, limiter: l, degraded: degraded}}
}

// Report passes d, returned by an Inner of h, and f to the limiter that granted d.
func (h *SubGrants) Report(ctx context.Context, c Claim, d Decision, f Feedback) {
	if !h.Owns(d) {
		return
	}
	t := d.subGrant
	if t.parts == nil { // undo wrap
		d.subGrant, d.Degraded = nil, d.Degraded && !t.degraded
		t.limiter.Report(ctx, c, d, f)
	} else {
		h.Unwrap(d, f.State, func(parts []Decision) { t.limiter.Report(ctx, c, parts[0], f) })
	}
}

// An inner is the result of SubGrants.Inner.
type inner struct{ grant subGrant }

func (i *inner) Traits() Traits { return i.grant.limiter.Traits() }

func (i *inner) Report(ctx context.Context, c Claim, d Decision, f Feedback) {
	i.grant.owner.Report(ctx, c, d, f)
}

func (i *inner) Reserve(ctx context.Context, c Claim) (Decision, error) {
	d, err := i.grant.limiter.Reserve(ctx, c)
	if err != nil {
		return Decision{}, err
	}
	return i.grant.wrap(d, c.DryRun), nil
}

// A subGrant leads from the Decision of a composed limiter to the Decisions of the limiters
// that granted the claim. One with parts belongs to one claim at a time: a Decision carries the
// generation as its Grant, and is ignored in a later one. One without parts is that of an inner.
type subGrant struct {
	owner *SubGrants
	parts []Decision

	mu         sync.Mutex // guards generation and users; not held while a limiter is called
	generation uint64     // increases when the claim ends, so that it ends only once
	users      int        // number of calls of Report in progress that use parts

	limiter  Limiter // of an inner, or that granted the claim for one
	degraded bool    // decisions of limiter are returned as Degraded
}

func (h *SubGrants) get(n int) *subGrant {
	if t, ok := h.pool.Get().(*subGrant); ok {
		return t
	}
	return &subGrant{owner: h, parts: make([]Decision, n)}
}

// use begins a use of t for the claim of the given generation, and ends the claim unless state is
// Ongoing. It reports false if the claim has ended; otherwise the caller must call release.
func (t *subGrant) use(generation uint64, state State) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation != generation {
		return false
	}
	if t.users++; state != Ongoing {
		t.generation++
	}
	return true
}

// attach returns d as the decision that leads to t.
func (t *subGrant) attach(d Decision) Decision {
	d.subGrant, d.Grant = t, t.generation
	return d
}

// release ends a use of t for the claim of the given generation. The last call for a claim that
// has ended returns t to the pool.
func (t *subGrant) release(generation uint64) {
	t.mu.Lock()
	t.users--
	last := t.users == 0 && t.generation != generation
	t.mu.Unlock()
	if last {
		t.owner.pool.Put(t)
	}
}

// wrap returns d, returned by t.limiter, as a Decision of t.owner. It gets a separate subGrant
// only if it has one of its own, or if its Degraded could not be restored.
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
