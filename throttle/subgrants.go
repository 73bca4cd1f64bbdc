package throttle

// SubGrants is for limiters of other packages that are made of several, or that have to
// remember more of a grant than Decision.Grant holds: from a Decision of theirs they find
// what each part decided. The zero Trails is ready to use. It must not be copied.
//
// A claim that has ended stays as it ended: its Decision leads nowhere from then on. One
// that never ends becomes garbage together with its Decision.
type SubGrants struct{ grants subGrants }

// Wrap returns d, a grant, as a Decision from which parts can be found again. They are
// copied; there must be as many of them each time. It takes the place of d.Grant.
func (t *SubGrants) Wrap(d Decision, parts []Decision) Decision {
	s := t.grants.get(len(parts))
	copy(s.parts, parts)
	return s.attach(d)
}

// Unwrap calls f with the parts of d, unless d was not marked by t or the claim has ended.
// The claim ends with it, unless it goes on. The parts belong to f while it runs.
func (t *SubGrants) Unwrap(d Decision, partial bool, f func(parts []Decision)) {
	if s := t.grants.lookup(d, partial); s != nil {
		defer s.release()
		f(s.parts)
	}
}
