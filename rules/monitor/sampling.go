package monitor

// session returns the visit that a key of hash h is on; nil: it is not followed. The
// caller holds the lock of s.
func (t *Stats) session(s *shard, h uint64, now int64) *session {
	if t.params == nil {
		return nil
	}
	v := s.sessions.find(h)
	switch {
	case v == nil:
		if v = t.addSession(s, h, now); v == nil {
			return nil
		}
	case !v.expired(now):
		return v
	}
	t.finishSession(s, v)
	v.begin(t.params, now, 1<<s.sampleBits)
	return v
}

// addSession returns a place for a key that is not followed; nil: it is not to be. If there
// is no room for all, only every other key is followed from then on.
func (t *Stats) addSession(s *shard, h uint64, now int64) *session {
	if h>>(64-s.sampleBits) != 0 {
		return nil
	}
	limit := (orElse(t.MaxSessions, 1024) + numShards - 1) / numShards
	if s.sampleBits > 0 && len(s.sessions.slots) == limit && s.sessions.cursor == 0 && s.sessions.numActive(now) < limit/4 {
		s.sampleBits--
	}
	for h>>(64-s.sampleBits) == 0 {
		if v := s.sessions.add(h, limit, now); v != nil || s.sampleBits == maxSampleBits {
			return v
		}
		s.halveSample()
	}
	return nil
}

// halveSample follows only every other key from now on. Those that are left stand for twice as
// many, unless they were there when the sample was that thin before.
func (s *shard) halveSample() {
	s.sampleBits++
	s.sessions.retainBelow(1 << (64 - s.sampleBits))
	for i := range s.sessions.slots {
		v := &s.sessions.slots[i].record
		v.weight = max(v.weight, 1<<s.sampleBits)
	}
}

// maxSampleBits is how thin a sample gets at most, so that what it stands for can be counted.
const maxSampleBits = 32

// finishSession keeps what a visit that is over tells.
func (t *Stats) finishSession(s *shard, v *session) {
	if v.inStreak {
		s.addStreaks(0, 1)
	}
	if !v.refused {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finished == nil {
		t.finished = new(sessionTotals)
	}
	t.finished.add(v)
}
