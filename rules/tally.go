package rules

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
)

// A Tally counts what a limit decides, so that one can tell whether it does its job: how
// many were refused, who most often, whether they came back and were granted something
// then, and how much they wanted. Advise makes a sentence of it. The zero Tally counts;
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
// No field may change once it is in use. A Tally must not be copied.
type Tally struct {
	// Limit is what demand is measured against; it must be valid. Zero: demand and
	// streaks are not followed.
	Limit throttle.Limit

	// Shadow says that what is granted with Decision.Over would have been refused, as
	// by a throttle.Shadow. Otherwise it is over a soft limit, or lent.
	Shadow bool

	Keys  int           // visits that are followed at a time; 0: 1,024
	Top   int           // refused keys that are counted each by itself; 0: 128
	Later time.Duration // how soon a grant has to come to end a streak; 0: twice Limit.Per

	once    sync.Once
	seed    maphash.Seed
	start   time.Time // readings count from it
	measure *measure  // nil: visits are not followed
	stripes [tallyStripes]stripe
	top     atomic.Pointer[sketch.Top]
	name    nameKey

	mu   sync.Mutex // of past; taken last
	past *visits    // that are over; nil: none was refused
}

const tallyStripes = 16

// A stripe is the part of the keys that one lock is for.
type stripe struct {
	mu     sync.Mutex
	counts Counts
	first  int64 // readings of the claims counted, if there are any
	last   int64
	visits roster[visit, *visit]
	thin   uint // only keys whose hash begins with so many zeros are followed
	_      [64]byte
}

func (t *Tally) begin() {
	t.seed, t.start, t.name = maphash.MakeSeed(), time.Now(), newNameKey()
	t.top.Store(sketch.NewTop(orElse(t.Top, 128)))
	if t.Limit == (throttle.Limit{}) {
		return
	}
	if err := t.Limit.Validate(); err != nil {
		panic("rules: Tally: " + err.Error())
	}
	t.measure = newMeasure(t.Limit, int64(t.Later))
	// Bins begin where they would in any other run, so that the same claims give the same demand.
	t.start = t.start.Add(-time.Duration(t.start.UnixNano() % t.measure.width))
}

func orElse(n, or int) int {
	if n <= 0 {
		return or
	}
	return n
}

// Decided counts the answer to c, unless c was a dry run.
func (t *Tally) Decided(c throttle.Claim, d throttle.Decision) {
	n, err := c.Units()
	if err != nil || c.DryRun {
		return
	}
	t.once.Do(t.begin)
	h, now := maphash.String(t.seed, c.Key), t.read(d.At)
	refused := !d.OK || t.Shadow && d.Over
	s := t.stripe(h)
	s.mu.Lock()
	s.count(d, now, t.Shadow)
	if v := t.follow(s, h, now); v != nil {
		v.asked(n, now)
		s.settle(v.decided(refused, now))
	}
	s.mu.Unlock()
	if refused {
		t.top.Load().Add(t.named(c.Key), 1)
	}
}

// Undecided counts a claim on which no decision was reached.
func (t *Tally) Undecided(c throttle.Claim) {
	t.bump(c, func(n *Counts) { n.Undecided++ })
}

// Cancelled counts that c was granted and not used.
func (t *Tally) Cancelled(c throttle.Claim) {
	t.bump(c, func(n *Counts) { n.Cancelled++ })
}

func (t *Tally) bump(c throttle.Claim, count func(*Counts)) {
	if c.DryRun {
		return
	}
	t.once.Do(t.begin)
	s := t.stripe(maphash.String(t.seed, c.Key))
	s.mu.Lock()
	count(&s.counts)
	s.mu.Unlock()
}

// stripe returns what a key of hash h is counted in. The first bits of h say whether it
// is followed, so the last ones are used here.
func (t *Tally) stripe(h uint64) *stripe { return &t.stripes[h%tallyStripes] }

// read returns nanoseconds from the start of t, with room for sums.
func (t *Tally) read(at time.Time) int64 {
	const far = math.MaxInt64 / 4
	return min(max(int64(at.Sub(t.start)), -far), far)
}

func (s *stripe) count(d throttle.Decision, now int64, shadow bool) {
	n := &s.counts
	if n.Asked() == 0 {
		s.first, s.last = now, now
	}
	s.first, s.last = min(s.first, now), max(s.last, now)
	switch {
	case !d.OK:
		n.Refused++
	case d.Over && shadow:
		n.Allowed++
		n.Shadowed++
	case d.Over:
		n.Allowed++
		n.Over++
	default:
		n.Allowed++
	}
	if d.Degraded {
		n.Degraded++
	}
}

func (s *stripe) settle(returned, gaveUp int64) {
	s.counts.Returned += returned
	s.counts.GaveUp += gaveUp
}
