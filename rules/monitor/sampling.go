package monitor

// session returns the current session of a key with hash h. It begins a new one if the previous
// one has expired. It returns nil if the key is not in the sample. The caller holds s.mu.
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

// addSession returns a free slot for a key without a session. It returns nil if the key is not in
// the sample. If there is no free slot, it halves the sample.
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

// halveSample removes half of all keys from the sample. The weight of each remaining session is
// doubled, unless it already had that weight from an earlier time with a sample of that size.
func (s *shard) halveSample() {
	s.sampleBits++
	s.sessions.retainBelow(1 << (64 - s.sampleBits))
	for i := range s.sessions.slots {
		v := &s.sessions.slots[i].record
		v.weight = max(v.weight, 1<<s.sampleBits)
	}
}

// maxSampleBits limits how small the sample gets, so that weights do not overflow.
const maxSampleBits = 32

// finishSession adds the results of a session that has ended to the totals.
func (t *Stats) finishSession(s *shard, v *session) {
	if v.inStreak {
		s.addStreaks(0, 1)
	}
	if !v.rejected {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finished == nil {
		t.finished = new(sessionTotals)
	}
	t.finished.add(v)
}
