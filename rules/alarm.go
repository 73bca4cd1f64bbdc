package rules

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// An Episode is a time in which a key is refused, or fails, more often than it should.
type Episode struct {
	Key     string    // whose; as the client sent it
	At      time.Time // the reading of the clock at which it began
	Refused int64     // refusals that led to it
	Failed  int64     // failures that led to it
}

// An Alarm rings once when a key is refused or fails too often, and not again until the
// key has kept quiet: one message per attack rather than one per request.
//
//	level
//	  │        told
//	  │        ▼
//	  ├─ Burst ╭─────╮  more change nothing  ╭────────╮ told
//	  │       ╱       ╲                     ╱          ▼
//	  ├─ half╱─────────╲───╱╲──────────────╱──────────────
//	  │     ╱           ╲_╱  ╲____________╱
//	  0                  |--------|   Quiet below half: it is over
//
// The level rises by one with each refusal or failure, and falls by Count every Per. An
// episode begins when it would exceed the Burst of Threshold: when a token bucket of that
// limit would refuse. It stays there at most, so that the end of an attack does not
// depend on how long it was. The episode is over when the level has been at half of the
// Burst or below for Quiet.
//
// Invariant: of one key Ring is told no more than once in Quiet. No more than MaxKeys
// keys are watched, and a key that is neither refused nor fails costs nothing.
//
// The odd case is a crowd of more keys than that. Whoever is at a level is not forgotten
// for the sake of others, and new keys are not watched until there is room.
//
// No field may change once it is in use. An Alarm must not be copied.
type Alarm struct {
	Threshold throttle.Limit // must be valid
	Quiet     time.Duration  // 0: Threshold.Per
	MaxKeys   int            // 0: 4,096

	// Ring is called for each episode that begins. It must be set, and must not block.
	Ring func(Episode)

	once  sync.Once
	seed  maphash.Seed
	start time.Time
	pace  pace
	burst int64
	quiet int64

	mu   sync.Mutex
	keys roster[unrest, *unrest]
}

// unrest is what is known of a key that was refused or has failed.
type unrest struct {
	of      *Alarm
	meter   meter
	calm    int64 // since when the level is low, or will be
	told    bool  // an episode has begun, and is not over
	refused int64 // since the level was 0 or an episode was over
	failed  int64
}

func (a *Alarm) begin() {
	if err := a.Threshold.Validate(); err != nil {
		panic("rules: Alarm: " + err.Error())
	}
	if a.Ring == nil {
		panic("rules: Alarm: Ring is nil: it is who is told")
	}
	a.seed, a.start, a.pace = maphash.MakeSeed(), time.Now(), paceOf(a.Threshold)
	if a.burst = a.Threshold.Burst; a.burst == 0 {
		a.burst = a.Threshold.Count
	}
	if a.quiet = int64(a.Quiet); a.quiet <= 0 {
		a.quiet = int64(a.Threshold.Per)
	}
}

// Decided counts a refusal, unless c was a dry run.
func (a *Alarm) Decided(c throttle.Claim, d throttle.Decision) {
	if !d.OK && !c.DryRun {
		a.note(c.Key, d.At, 1, 0)
	}
}

// Observed counts work that failed or was throttled, once it has ended.
func (a *Alarm) Observed(c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.Outcome == throttle.Accepted || f.More || !d.OK {
		return
	}
	at := f.Now
	if at.IsZero() {
		at = d.At
	}
	a.note(c.Key, at, 0, 1)
}

func (a *Alarm) note(key string, at time.Time, refused, failed int64) {
	a.once.Do(a.begin)
	if e, begins := a.count(key, at, refused, failed); begins {
		a.Ring(e)
	}
}

// count reports whether an episode of key begins.
func (a *Alarm) count(key string, at time.Time, refused, failed int64) (e Episode, begins bool) {
	const far = math.MaxInt64 / 4
	now := min(max(int64(at.Sub(a.start)), -far), far)
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.find(maphash.String(a.seed, key), now)
	if u == nil {
		return e, false
	}
	u.settle(now)
	u.refused += refused
	u.failed += failed
	if !u.rise(now) {
		return e, false
	}
	return Episode{Key: key, At: at, Refused: u.refused, Failed: u.failed}, true
}

// find returns what is known of a key; nil: there is no room to watch it.
func (a *Alarm) find(h uint64, now int64) *unrest {
	u := a.keys.find(h)
	if u == nil {
		u = a.keys.add(h, orElse(a.MaxKeys, 4096), now)
	} else if !u.over(now) {
		return u
	}
	if u != nil {
		*u = unrest{of: a, meter: meter{at: now}, calm: now}
	}
	return u
}

// settle ends an episode that was quiet for long enough. What is counted from then on
// belongs to the next one.
func (u *unrest) settle(now int64) {
	if u.told && max(now, u.meter.at)-u.calm >= u.of.quiet {
		u.told, u.refused, u.failed = false, 0, 0
	}
}

// rise adds one to the level. It reports whether that begins an episode.
func (u *unrest) rise(now int64) (begins bool) {
	a := u.of
	now = max(now, u.meter.at)
	level := u.meter.add(1, now, a.pace)
	if level > a.burst {
		u.meter.level, u.meter.part = a.burst, 0
		begins, u.told = !u.told, true
	}
	if u.meter.level > a.low() {
		u.calm = u.meter.until(a.low(), a.pace)
	}
	return begins
}

// low is the level at which a key is calm.
func (a *Alarm) low() int64 { return a.burst / 2 }

// over implements record.
func (u *unrest) over(now int64) bool {
	return u.meter.until(0, u.of.pace) <= now && (!u.told || now-u.calm >= u.of.quiet)
}
