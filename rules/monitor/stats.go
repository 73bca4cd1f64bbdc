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

// Stats counts the decisions of a limit: how many claims it rejected, for which keys most often,
// whether these keys were granted something later, and how much they asked for. Recommend derives
// a recommendation from its Snapshot. The zero Stats counts decisions; with a Limit it measures
// demand too.
//
//	rejected  ####          ##         #
//	granted      ...  ..         ...       . .
//	         ──────────────────────────────────────▶ time
//	         a streak,     another    a streak without a grant
//	         ended by      streak     within ReturnWithin:
//	         a grant                  abandoned
//
// The claims of a key are grouped into sessions: a session begins with a claim and ends when the
// limit no longer depends on any of its claims. Sessions without a rejection are not kept.
//
// Invariant: at most MaxSessions sessions are tracked (rounded up to a multiple of 16) and at most
// TopKeys keys are counted by name, however many keys there are. All other counts are exact, and
// all values of a Snapshot are taken at the same time.
//
// Limitations: if more than MaxSessions keys have a session at the same time, half of all keys, by
// their hash, are no longer tracked; then half of the remaining ones, and so on. The tracked
// sessions stay a uniform sample, and each of them is tracked from beginning to end. When the
// sample grows again, the first session of a key may lack its beginning.
//
// Fields must not be changed after the first call. A Stats must not be copied.
type Stats struct {
	// Limit is the limit against which demand is measured. It must be valid. The zero Limit means
	// that neither demand nor streaks are measured.
	Limit throttle.Limit

	// Shadow means that claims granted with Decision.OverLimit would have been rejected, as with
	// throttle.Shadow. False means that they exceeded a soft limit or were granted by borrowing.
	Shadow bool

	// MaxSessions is the maximum number of sessions that are tracked at the same time. Zero or a
	// negative value means 1,024.
	MaxSessions int

	// TopKeys is the number of counters for the keys that are rejected most often. Zero or a
	// negative value means 128.
	TopKeys int

	// ReturnWithin is the time after a rejection within which a grant ends a streak. Zero or a
	// negative value means twice Limit.Per.
	ReturnWithin time.Duration

	once       sync.Once
	seed       maphash.Seed
	start      time.Time      // times are nanoseconds since start
	params     *sessionParams // nil means that sessions are not tracked
	shards     [numShards]shard
	top        atomic.Pointer[sketch.TopK]
	pseudonyms pseudonymKey

	mu       sync.Mutex     // guards finished; acquired after the locks of shards
	finished *sessionTotals // sessions that have ended; nil if none of them was rejected
}

const numShards = 16

// A shard holds the counts and sessions of a part of the keys.
type shard struct {
	mu         sync.Mutex
	counts     Counts
	first      int64 // times of the counted claims, if there are any
	last       int64
	sessions   table[session, *session]
	sampleBits uint // only keys whose hash begins with this number of zero bits are tracked
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
	// Bins begin at the same times in all processes, so that the same claims result in the same
	// demand.
	t.start = t.start.Add(-time.Duration(t.start.UnixNano() % t.params.binWidth))
}

func orElse(n, or int) int {
	if n <= 0 {
		return or
	}
	return n
}

// Decided counts the decision d on c, unless c is a dry run.
func (t *Stats) Decided(c throttle.Claim, d throttle.Decision) {
	n, err := c.Units()
	if err != nil || c.DryRun {
		return
	}
	t.once.Do(t.setup)
	h, now := maphash.String(t.seed, c.Key), t.nanos(d.At)
	rejected := !d.OK || t.Shadow && d.OverLimit
	s := t.shard(h)
	s.mu.Lock()
	s.count(d, now, t.Shadow)
	if v := t.session(s, h, now); v != nil {
		v.addClaim(n, now)
		s.addStreaks(v.addDecision(rejected, now))
	}
	s.mu.Unlock()
	if rejected {
		t.top.Load().Add(t.truncateKey(c.Key), 1)
	}
}

// Undecided counts a claim whose limiter returned an error.
func (t *Stats) Undecided(c throttle.Claim) {
	t.addCount(c, func(n *Counts) { n.Undecided++ })
}

// Cancelled counts a claim that was granted and not used.
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

// shard returns the shard of a key with hash h. It uses the last bits of h, because the first bits
// decide whether the key is in the sample.
func (t *Stats) shard(h uint64) *shard { return &t.shards[h%numShards] }

// nanos returns the time from t.start to at in nanoseconds, limited to a range in which sums do
// not overflow.
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
		n.Rejected++
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
