package throttle

import "context"

// A limiter that asks one of many others must find that one again when the claim
// ends. Its Decisions point to the way, which belongs to the limiter that granted and
// not to the claim: so a claim that never ends costs nothing.
//
// The Decision of a limiter that is itself composed has a trail of its own, which
// has to be kept as well. Only those claims get a trail each.

// lead returns d, made by t.to, as what t.home hands out.
func (t *trail) lead(d Decision, dry bool) Decision {
	switch {
	case !d.OK || dry:
		d.trail = nil
	case d.trail == nil && !(d.Degraded && t.degraded):
		d.trail = t
	default:
		kept := t.home.take(1)
		kept.to, kept.parts[0] = t.to, d
		d = kept.mark(d)
	}
	d.Degraded = d.Degraded || t.degraded
	return d
}

// back returns d as t.to made it. Only ways without parts know.
func (t *trail) back(d Decision) Decision {
	d.trail = nil
	if t.degraded {
		d.Degraded = false
	}
	return d
}

// cancel hands d to the limiter that granted it.
func (h *trails) cancel(ctx context.Context, c Claim, d Decision) {
	if !h.made(d) {
		return
	}
	if t := d.trail; t.parts == nil {
		t.to.Cancel(ctx, c, t.back(d))
	} else if t := h.enter(d, false); t != nil {
		defer t.leave()
		t.to.Cancel(ctx, c, t.parts[0])
	}
}

// observe hands d to the limiter that granted it.
func (h *trails) observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if !h.made(d) {
		return
	}
	if t := d.trail; t.parts == nil {
		Observe(ctx, t.to, c, t.back(d), f)
	} else if t := h.enter(d, f.More); t != nil {
		defer t.leave()
		Observe(ctx, t.to, c, t.parts[0], f)
	}
}
