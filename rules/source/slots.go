package source

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// slots bounds the number of lookups at the same time. A lookup that ends passes its slot to the claim
// that waits longest, first among those of known keys. The zero slots is ready to use.
type slots struct {
	mu      sync.Mutex
	running int
	known   []chan struct{} // waiting claims of known keys; a channel is closed with a slot
	others  []chan struct{}
}

// othersPerSlot is the maximum number of claims of unknown keys that wait, for each slot.
const othersPerSlot = 4

// acquire takes one of limit slots. If none is free and wait is true, it waits up to busyWait for one. It
// returns false if it has not got a slot.
func (s *slots) acquire(ctx context.Context, limit int, known, wait bool) bool {
	s.mu.Lock()
	if s.running < limit {
		s.running++
		s.mu.Unlock()
		return true
	}
	if !wait || !known && len(s.others) >= othersPerSlot*limit {
		s.mu.Unlock()
		return false
	}
	line := &s.others
	if known {
		line = &s.known
	}
	mine := make(chan struct{})
	*line = append(*line, mine)
	s.mu.Unlock()
	timer := time.NewTimer(busyWait)
	defer timer.Stop()
	select {
	case <-mine:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return !s.leave(line, mine)
}

// leave removes mine from line. It returns false if mine has got a slot already.
func (s *slots) leave(line *[]chan struct{}, mine chan struct{}) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(*line, mine)
	if i < 0 {
		return false
	}
	*line = slices.Delete(*line, i, i+1)
	return true
}

// release passes a slot to a waiting claim, or makes it free.
func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := &s.known
	if len(*line) == 0 {
		line = &s.others
	}
	if len(*line) == 0 {
		s.running--
		return
	}
	close((*line)[0])
	*line = (*line)[1:]
}

// A keySet remembers which keys had a limit: the newest ones, at least max and at most twice as many. It
// stores hashes, so that another key is taken for one of them with a negligible probability. The zero
// keySet is ready to use.
type keySet struct {
	once     sync.Once
	seed     maphash.Seed
	mu       sync.Mutex
	new, old map[uint64]struct{}
}

func (s *keySet) hash(key string) uint64 {
	s.once.Do(func() { s.seed = maphash.MakeSeed() })
	return maphash.String(s.seed, key)
}

// add adds key.
func (s *keySet) add(key string, max int) {
	h := s.hash(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.new == nil || len(s.new) >= max {
		s.new, s.old = map[uint64]struct{}{}, s.new
	}
	s.new[h] = struct{}{}
}

// has reports whether key was added.
func (s *keySet) has(key string) bool {
	h := s.hash(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, isNew := s.new[h]
	_, isOld := s.old[h]
	return isNew || isOld
}
