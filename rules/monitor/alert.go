package monitor

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// An Incident is a time in which a key is refused, or fails, more often than it should.
type Incident struct {
	Key     string    // whose; as the client sent it
	At      time.Time // the reading of the clock at which it began
	Refused int64     // refusals that led to it
	Failed  int64     // failures that led to it
}

// An Alert rings once when a key is refused or fails too often, and not again until the
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
// Invariant: of one key OnIncident is told no more than once in Quiet. No more than MaxKeys
// keys are watched, and a key that is neither refused nor fails costs nothing.
//
// The odd case is a crowd of more keys than that. Whoever is at a level is not forgotten
// for the sake of others, and new keys are not watched until there is room.
//
// No field may change once it is in use. An Alert must not be copied.
type Alert struct {
	Threshold throttle.Limit // must be valid
	Quiet     time.Duration  // 0: Threshold.Per
	MaxKeys   int            // 0: 4,096

	// OnIncident is called for each episode that begins. It must be set, and must not block.
	OnIncident func(Incident)

	once  sync.Once
	seed  maphash.Seed
	start time.Time
	rate  drainRate
	burst int64
	quiet int64

	mu   sync.Mutex
	keys table[keyState, *keyState]
}

// keyState is what is known of a key that was refused or has failed.
type keyState struct {
	alert      *Alert
	meter      meter
	quietSince int64 // since when the level is low, or will be
	reported   bool  // an episode has begun, and is not over
	refused    int64 // since the level was 0 or an episode was over
	failed     int64
}

func (a *Alert) setup() {
	if err := a.Threshold.Validate(); err != nil {
		panic("monitor: Alert: " + err.Error())
	}
	if a.OnIncident == nil {
		panic("monitor: Alert: OnIncident is nil")
	}
	a.seed, a.start, a.rate = maphash.MakeSeed(), time.Now(), drainRateOf(a.Threshold)
	if a.burst = a.Threshold.Burst; a.burst == 0 {
		a.burst = a.Threshold.Count
	}
	if a.quiet = int64(a.Quiet); a.quiet <= 0 {
		a.quiet = int64(a.Threshold.Per)
	}
}

// Decided counts a refusal, unless c was a dry run.
func (a *Alert) Decided(c throttle.Claim, d throttle.Decision) {
	if !d.OK && !c.DryRun {
		a.record(c.Key, d.At, 1, 0)
	}
}

// Observed counts work that failed or was throttled, once it has ended.
func (a *Alert) Observed(c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.Outcome == throttle.Accepted || f.Partial || !d.OK {
		return
	}
	at := f.Now
	if at.IsZero() {
		at = d.At
	}
	a.record(c.Key, at, 0, 1)
}

func (a *Alert) record(key string, at time.Time, refused, failed int64) {
	a.once.Do(a.setup)
	if e, begins := a.count(key, at, refused, failed); begins {
		a.OnIncident(e)
	}
}

// count reports whether an episode of key begins.
func (a *Alert) count(key string, at time.Time, refused, failed int64) (e Incident, begins bool) {
	const far = math.MaxInt64 / 4
	now := min(max(int64(at.Sub(a.start)), -far), far)
	a.mu.Lock()
	defer a.mu.Unlock()
	state := a.find(maphash.String(a.seed, key), now)
	if state == nil {
		return e, false
	}
	state.endIncident(now)
	state.refused += refused
	state.failed += failed
	if !state.raiseLevel(now) {
		return e, false
	}
	return Incident{Key: key, At: at, Refused: state.refused, Failed: state.failed}, true
}

// find returns what is known of a key; nil: there is no room to watch it.
func (a *Alert) find(h uint64, now int64) *keyState {
	state := a.keys.find(h)
	if state == nil {
		state = a.keys.add(h, orElse(a.MaxKeys, 4096), now)
	} else if !state.expired(now) {
		return state
	}
	if state != nil {
		*state = keyState{alert: a, meter: meter{at: now}, quietSince: now}
	}
	return state
}

// endIncident ends an episode that was quiet for long enough. What is counted from then on
// belongs to the next one.
func (s *keyState) endIncident(now int64) {
	if s.reported && max(now, s.meter.at)-s.quietSince >= s.alert.quiet {
		s.reported, s.refused, s.failed = false, 0, 0
	}
}

// raiseLevel adds one to the level. It reports whether that begins an episode.
func (s *keyState) raiseLevel(now int64) (begins bool) {
	alert := s.alert
	now = max(now, s.meter.at)
	level := s.meter.add(1, now, alert.rate)
	if level > alert.burst {
		s.meter.level, s.meter.part = alert.burst, 0
		begins, s.reported = !s.reported, true
	}
	if s.meter.level > alert.quietLevel() {
		s.quietSince = s.meter.until(alert.quietLevel(), alert.rate)
	}
	return begins
}

// quietLevel is the level at which a key is calm.
func (a *Alert) quietLevel() int64 { return a.burst / 2 }

// expired implements record.
func (s *keyState) expired(now int64) bool {
	return s.meter.until(0, s.alert.rate) <= now && (!s.reported || now-s.quietSince >= s.alert.quiet)
}
