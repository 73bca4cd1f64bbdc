package monitor

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Incident describes a time in which a key is rejected, or fails, too often.
type Incident struct {
	// Key is the key as the client sent it.
	Key string

	// At is the time of the rejection or failure that began the incident.
	At time.Time

	// Rejected is the number of rejections that led to the incident.
	Rejected int64

	// Failed is the number of failures that led to the incident.
	Failed int64
}

// Alert calls OnIncident once when a key is rejected or fails too often, and not again until the
// key has been quiet: one call per attack instead of one per request.
//
//	level
//	  │        OnIncident
//	  │        ▼
//	  ├─ Burst ╭─────╮  more change nothing  ╭────────╮ OnIncident
//	  │       ╱       ╲                     ╱          ▼
//	  ├─ half╱─────────╲───╱╲──────────────╱──────────────
//	  │     ╱           ╲_╱  ╲____________╱
//	  0                  |--------|   Quiet below half: the incident is over
//
// The level of a key rises by one with each rejection or failure, and falls by Threshold.Count every
// Threshold.Per. An incident begins when the level would exceed Threshold.Burst, that is, when a
// token bucket with that limit would reject. The level never exceeds the burst, so that the end of
// an attack does not depend on its length. The incident is over when the level has been at most
// half of the burst for Quiet.
//
// Invariant: OnIncident is called at most once in Quiet for each key. At most MaxKeys keys are
// tracked, and a key that is neither rejected nor fails takes no memory.
//
// Limitations: while MaxKeys keys have a level above zero or an incident, further keys are not
// tracked. A tracked key is never replaced by another one before its level is zero and its
// incident is over.
//
// Fields must not be changed after the first call. An Alert must not be copied.
type Alert struct {
	// Threshold is the limit for rejections and failures of a key. It must be valid.
	Threshold throttle.Limit

	// Quiet is how long the level must stay at or below half of the burst to end an incident. Zero
	// or a negative value means Threshold.Per.
	Quiet time.Duration

	// MaxKeys is the maximum number of tracked keys. Zero or a negative value means 4,096.
	MaxKeys int

	// OnIncident is called at the beginning of each incident. It must be set, and must not block.
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

// keyState is the state of a key that was rejected or has failed.
type keyState struct {
	alert *Alert
	meter meter

	// quietSince is the time from which the level is low, or will be without further rejections.
	quietSince int64
	reported   bool  // an incident has begun and is not over
	rejected   int64 // since the level was 0 or an incident ended
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

// Decided counts the decision d if it is a rejection, unless c is a dry run.
func (a *Alert) Decided(c throttle.Claim, d throttle.Decision) {
	if !d.OK && !c.DryRun {
		a.record(c.Key, d.At, 1, 0)
	}
}

// Observed counts granted work that has ended and whose outcome is not throttle.Accepted.
func (a *Alert) Observed(c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.Outcome == throttle.Accepted || f.State == throttle.Ongoing || !d.OK {
		return
	}
	at := f.Now
	if at.IsZero() {
		at = d.At
	}
	a.record(c.Key, at, 0, 1)
}

func (a *Alert) record(key string, at time.Time, rejected, failed int64) {
	a.once.Do(a.setup)
	if e, begins := a.count(key, at, rejected, failed); begins {
		a.OnIncident(e)
	}
}

// count records rejections and failures of key. It reports whether an incident begins.
func (a *Alert) count(key string, at time.Time, rejected, failed int64) (e Incident, begins bool) {
	const far = math.MaxInt64 / 4
	now := min(max(int64(at.Sub(a.start)), -far), far)
	a.mu.Lock()
	defer a.mu.Unlock()
	state := a.find(maphash.String(a.seed, key), now)
	if state == nil {
		return e, false
	}
	state.endIncident(now)
	state.rejected += rejected
	state.failed += failed
	if !state.raiseLevel(now) {
		return e, false
	}
	return Incident{Key: key, At: at, Rejected: state.rejected, Failed: state.failed}, true
}

// find returns the state of the key with hash h. It returns nil if the key cannot be tracked.
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

// endIncident ends an incident if the key has been quiet for long enough. Later rejections and
// failures belong to the next incident.
func (s *keyState) endIncident(now int64) {
	if s.reported && max(now, s.meter.at)-s.quietSince >= s.alert.quiet {
		s.reported, s.rejected, s.failed = false, 0, 0
	}
}

// raiseLevel adds one to the level. It reports whether that begins an incident.
func (s *keyState) raiseLevel(now int64) (begins bool) {
	alert := s.alert
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

// quietLevel returns the level at or below which a key is quiet.
func (a *Alert) quietLevel() int64 { return a.burst / 2 }

// expired implements tableRecord.
func (s *keyState) expired(now int64) bool {
	return s.meter.until(0, s.alert.rate) <= now && (!s.reported || now-s.quietSince >= s.alert.quiet)
}
