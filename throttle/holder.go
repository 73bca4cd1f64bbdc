package throttle

// A Holder is a Limiter that can need to know when the work of a claim has ended, as
// a limit on concurrency does. Who admits HTTP requests then reports the end of the
// response's body, with a second feedback: see Feedback.More. All other limiters get
// one feedback, when the response has begun.
//
// A limiter that wraps others holds until the end if one of them does. The answer may
// become true with the first grant, and is then true from then on.
type Holder interface {
	HoldsUntilEnd() bool
}

// HoldsUntilEnd reports whether l is a Holder whose claims last until the work has
// ended.
func HoldsUntilEnd(l Limiter) bool {
	h, ok := l.(Holder)
	return ok && h.HoldsUntilEnd()
}

// HoldsUntilEnd implements Holder: a place is taken until the claim has ended.
func (*InFlight) HoldsUntilEnd() bool { return true }

// HoldsUntilEnd implements Holder.
func (a *allOf) HoldsUntilEnd() bool {
	for _, l := range a.ls {
		if HoldsUntilEnd(l) {
			return true
		}
	}
	return false
}

// HoldsUntilEnd implements Holder.
func (f *Fallback) HoldsUntilEnd() bool {
	return HoldsUntilEnd(f.Primary) || HoldsUntilEnd(f.Secondary)
}

// HoldsUntilEnd implements Holder.
func (s *Soft) HoldsUntilEnd() bool { return HoldsUntilEnd(s.Limit) || HoldsUntilEnd(s.Hard) }

// HoldsUntilEnd implements Holder.
func (e *Elastic) HoldsUntilEnd() bool { return HoldsUntilEnd(e.Limiter) }

// HoldsUntilEnd implements Holder.
func (s *Shadow) HoldsUntilEnd() bool { return HoldsUntilEnd(s.Limiter) }

// HoldsUntilEnd implements Holder.
func (p *Penalty) HoldsUntilEnd() bool { return HoldsUntilEnd(p.limiter) }

// HoldsUntilEnd implements Holder. It is true once New has returned a limiter whose
// claims last until the end.
func (k *Keyed) HoldsUntilEnd() bool { return k.holds.Load() || HoldsUntilEnd(k.Overflow) }

// make returns a limiter of New.
func (k *Keyed) make(key string) Limiter {
	l := k.New(key)
	if HoldsUntilEnd(l) {
		k.holds.Store(true)
	}
	return l
}

// HoldsUntilEnd implements Holder.
func (k *KeyedBuckets) HoldsUntilEnd() bool { return HoldsUntilEnd(k.spill.to) }
