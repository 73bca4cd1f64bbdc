package monitor

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
)

// A Stats counts what a limit decides, so that one can tell whether it does its job: how
// many were refused, who most often, whether they came back and were granted something
// then, and how much they wanted. Recommend makes a sentence of it. The zero Stats counts;
// with a Limit it also knows how much was wanted.
//
//	refused  ####          ##         #
//	granted      ...  ..         ...       . .
//	         ──────────────────────────────────────▶ time
//	         a streak,     another,   and one that
//	         ended by      too        nobody ended: gave up, when Later is over
//	         a grant
//
// What a key asks for is followed as a visit: it begins with a claim and is over when
// nothing of it matters to the limit any more. Visits without a refusal are forgotten.
//
// Invariant: no more than Keys visits are followed and no more than Top keys are named,
// however many come. Counts are exact; all of a Snapshot are of one instant.
//
// The odd case is more keys at a time than there is room for. Half of all keys, by their
// hash, are not followed from then on, and half of those that are left, and so on: the
// visits that are followed stay a fair sample, and are so from beginning to end. When
// there is room again it is given to keys that may be in the middle of a visit.
//
// No field may change once it is in use. A Stats must not be copied.
type Stats struct {
	// Limit is what demand is measured against; it must be valid. Zero: demand and
	// streaks are not followed.
	Limit throttle.Limit

	// Shadow says that what is granted with Decision.Over would have been refused, as
	// by a throttle.Shadow. Otherwise it is over a soft limit, or lent.
	Shadow bool

	MaxSessions  int           // visits that are followed at a time; 0: 1,024
	TopKeys      int           // refused keys that are counted each by itself; 0: 128
	ReturnWithin time.Duration // how soon a grant has to come to end a streak; 0: twice Limit.Per

	once       sync.Once
	seed       maphash.Seed
	start      time.Time      // readings count from it
	params     *sessionParams // nil: visits are not followed
	shards     [numShards]shard
	top        atomic.Pointer[sketch.TopK]
	pseudonyms pseudonymKey

	mu       sync.Mutex     // of past; taken last
	finished *sessionTotals // that are over; nil: none was refused
}

const numShards = 16

// A shard is the part of the keys that one lock is for.
type shard struct {
	mu         sync.Mutex
	counts     Counts
	first      int64 // readings of the claims counted, if there are any
	last       int64
	sessions   table[session, *session]
	sampleBits uint // only keys whose hash begins with so many zeros are followed
	_          [64]byte
}

func (t *Stats) setup() {
	t.seed, t.start, t.pseudonyms = maphash.MakeSeed(), time.Now(), newPseudonymKey()
	t.top.Store(sketch.NewTopK(orElse(t.TopKeys, 128)))
	if t.Limit == (throttle.Limit{}) {
		return
	}
	if err := t.Limit.Validate(); err != nil {
		panic("monitor: Stats: " + err.Error())
	}
	t.params = newSessionParams(t.Limit, int64(t.ReturnWithin))
	// Bins begin where they would in any other run, so that the same claims give the same demand.
	t.start = t.start.Add(-time.Duration(t.start.UnixNano() % t.params.binWidth))
}

func orElse(n, or int) int {
	if n <= 0 {
		return or
	}
	return n
}

// Decided counts the answer to c, unless c was a dry run.
func (t *Stats) Decided(c throttle.Claim, d throttle.Decision) {
	n, err := c.Units()
	if err != nil || c.DryRun {
		return
	}
	t.once.Do(t.setup)
	h, now := maphash.String(t.seed, c.Key), t.nanos(d.At)
	refused := !d.OK || t.Shadow && d.OverLimit
	s := t.shard(h)
	s.mu.Lock()
	s.count(d, now, t.Shadow)
	if v := t.session(s, h, now); v != nil {
		v.addClaim(n, now)
		s.addStreaks(v.addDecision(refused, now))
	}
	s.mu.Unlock()
	if refused {
		t.top.Load().Add(t.truncateKey(c.Key), 1)
	}
}

// Undecided counts a claim on which no decision was reached.
func (t *Stats) Undecided(c throttle.Claim) {
	t.addCount(c, func(n *Counts) { n.Undecided++ })
}

// Cancelled counts that c was granted and not used.
func (t *Stats) Cancelled(c throttle.Claim) {
	t.addCount(c, func(n *Counts) { n.Cancelled++ })
}

func (t *Stats) addCount(c throttle.Claim, count func(*Counts)) {
	if c.DryRun {
		return
	}
	t.once.Do(t.setup)
	s := t.shard(maphash.String(t.seed, c.Key))
	s.mu.Lock()
	count(&s.counts)
	s.mu.Unlock()
}

// shard returns what a key of hash h is counted in. The first bits of h say whether it
// is followed, so the last ones are used here.
func (t *Stats) shard(h uint64) *shard { return &t.shards[h%numShards] }

// nanos returns nanoseconds from the start of t, with room for sums.
func (t *Stats) nanos(at time.Time) int64 {
	const far = math.MaxInt64 / 4
	return min(max(int64(at.Sub(t.start)), -far), far)
}

func (s *shard) count(d throttle.Decision, now int64, shadow bool) {
	n := &s.counts
	if n.Decided() == 0 {
		s.first, s.last = now, now
	}
	s.first, s.last = min(s.first, now), max(s.last, now)
	switch {
	case !d.OK:
		n.Refused++
	case d.OverLimit && shadow:
		n.Allowed++
		n.Shadowed++
	case d.OverLimit:
		n.Allowed++
		n.OverLimit++
	default:
		n.Allowed++
	}
	if d.Degraded {
		n.Degraded++
	}
}

func (s *shard) addStreaks(returned, abandoned int64) {
	s.counts.Returned += returned
	s.counts.Abandoned += abandoned
}
