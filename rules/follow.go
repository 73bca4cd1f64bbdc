package rules

// follow returns the visit that a key of hash h is on; nil: it is not followed. The
// caller holds the lock of s.
func (t *Tally) follow(s *stripe, h uint64, now int64) *visit {
	if t.measure == nil {
		return nil
	}
	v := s.visits.find(h)
	switch {
	case v == nil:
		if v = t.admit(s, h, now); v == nil {
			return nil
		}
	case !v.over(now):
		return v
	}
	t.end(s, v)
	v.begin(t.measure, now, 1<<s.thin)
	return v
}

// admit returns a place for a key that is not followed; nil: it is not to be. If there
// is no room for all, only every other key is followed from then on.
func (t *Tally) admit(s *stripe, h uint64, now int64) *visit {
	if h>>(64-s.thin) != 0 {
		return nil
	}
	most := (orElse(t.Keys, 1024) + tallyStripes - 1) / tallyStripes
	if s.thin > 0 && len(s.visits.slots) == most && s.visits.hand == 0 && s.visits.used(now) < most/4 {
		s.thin--
	}
	for h>>(64-s.thin) == 0 {
		if v := s.visits.add(h, most, now); v != nil || s.thin == mostThin {
			return v
		}
		s.halve()
	}
	return nil
}

// halve follows only every other key from now on. Those that are left stand for twice as
// many, unless they were there when the sample was that thin before.
func (s *stripe) halve() {
	s.thin++
	s.visits.keepOnly(1 << (64 - s.thin))
	for i := range s.visits.slots {
		v := &s.visits.slots[i].record
		v.stands = max(v.stands, 1<<s.thin)
	}
}

// mostThin is how thin a sample gets at most, so that what it stands for can be counted.
const mostThin = 32

// end keeps what a visit that is over tells.
func (t *Tally) end(s *stripe, v *visit) {
	if v.waiting {
		s.settle(0, 1)
	}
	if !v.refused {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.past == nil {
		t.past = new(visits)
	}
	t.past.add(v)
}
