package throttle

import "context"

// A limiter that asks one of many others must find that one again when the claim
// ends. Its Decisions point to the way, which belongs to the limiter that granted and
// not to the claim: so a claim that never ends costs nothing.
//
// The Decision of a limiter that is itself composed has a trail of its own, which
// has to be kept as well. Only those claims get a trail each.

// wrap returns d, made by t.to, as what t.home hands out.
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

// unwrap returns d as t.to made it. Only ways without parts know.
func (t *subGrant) unwrap(d Decision) Decision {
	d.subGrant = nil
	if t.degraded {
		d.Degraded = false
	}
	return d
}

// cancel hands d to the limiter that granted it.
func (h *subGrants) cancel(ctx context.Context, c Claim, d Decision) {
	if !h.owns(d) {
		return
	}
	if t := d.subGrant; t.parts == nil {
		t.limiter.Cancel(ctx, c, t.unwrap(d))
	} else if t := h.lookup(d, false); t != nil {
		defer t.release()
		t.limiter.Cancel(ctx, c, t.parts[0])
	}
}

// observe hands d to the limiter that granted it.
func (h *subGrants) observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if !h.owns(d) {
		return
	}
	if t := d.subGrant; t.parts == nil {
		Observe(ctx, t.limiter, c, t.unwrap(d), f)
	} else if t := h.lookup(d, f.Partial); t != nil {
		defer t.release()
		Observe(ctx, t.limiter, c, t.parts[0], f)
	}
}
