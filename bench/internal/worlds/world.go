// Package worlds draws random worlds and runs HTTP clients in them, in virtual time.
//
// A World is a server, the calls that a program makes to it, and everything that can go
// wrong between them. All of it is determined by a seed: which attempt of which call is
// faulty, how long it takes and which backend receives it depend on the seed, the number of
// the call and the number of the attempt, not on the order of arrival. So the faults are the
// same for all clients, and the outcomes of a call can be compared in pairs.
//
//	w := worlds.New(seed)
//	plain, ours := w.Run(worlds.Plain), w.Run(worlds.Heed) // each in virtual time of its own
//	fmt.Println(w, worlds.Compare(ours, plain, nil).Points)
package worlds

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A World is a server and the calls that are made to it. It must not be changed after New.
type World struct {
	Seed      uint64
	Start     time.Duration // from the beginning of virtual time to the first call, with fractions of a second
	Lateness  time.Duration // the longest time by which a timer fires late
	Unnoticed bool          // the server processes requests further after their callers have ended them
	Skew      time.Duration // by which the clock of the server is ahead
	LateDate  bool          // Date is the time of the response; otherwise it is that of the arrival of the request
	LateState bool          // a response states what is left when it is sent; otherwise what was left when the request arrived
	Latency   Latency
	Load      Load
	Troubles  []Trouble
	Stated    *Statement // a statement that is not enforced; nil means none
	Limit     *Limit     // nil means none

	calls []call
}

// MaxCalls is the maximum number of calls in a world.
const MaxCalls = 20_000

// A call is one call of the program.
type call struct {
	at       time.Duration // the earliest start, from the start of the world
	route    int32
	tenant   int32
	resource int32
	post     bool
}

// Calls returns the number of calls.
func (w *World) Calls() int { return len(w.calls) }

// Median returns the median latency of the server when it is idle.
func (w *World) Median() time.Duration { return w.Latency.Median }

// Planned returns the time that the calls take if each takes the median latency and none is
// delayed.
func (w *World) Planned() time.Duration { return w.Load.Duration }

// patience is the longest time of a call without a deadline, so that every call ends.
func (w *World) patience() time.Duration { return time.Hour + 20*w.Latency.Median }

// horizon is the time after which no call is made and all are ended, so that every run ends.
func (w *World) horizon() time.Duration { return 12*time.Hour + 20*w.Load.Duration }

// maxAttempts is the number of attempts of a run after which the server is closed.
func (w *World) maxAttempts() int { return 20*len(w.calls) + 50_000 }

// String describes w in one line.
func (w *World) String() string {
	parts := []string{w.Load.String(), w.Latency.String()}
	for _, t := range w.Troubles {
		parts = append(parts, t.String())
	}
	if w.Stated != nil {
		parts = append(parts, w.Stated.String())
	}
	if w.Limit != nil {
		parts = append(parts, w.Limit.String())
	}
	if w.LateState && (w.Stated != nil || w.Limit != nil && w.Limit.Dialect.Headers != NoHeaders) {
		parts = append(parts, "stated with the response")
	}
	if w.Skew != 0 {
		parts = append(parts, "clock ahead by "+w.Skew.Round(time.Second).String())
	}
	return strings.Join(parts, "; ")
}

// Features returns the properties of w by which harm can be grouped, such as "open" or
// "trouble by tenant".
func (w *World) Features() []string {
	features := []string{"load " + string(w.Load.Kind), "latency " + string(w.Latency.Kind)}
	add := func(ok bool, feature string) {
		if ok {
			features = append(features, feature)
		}
	}
	add(w.Load.Deadline > 0, "deadline")
	add(w.Load.Deadline == 0, "no deadline")
	add(w.Load.Deadline > 0 && w.Load.Deadline < 2*w.Latency.Median, "deadline below two latencies")
	add(w.Latency.Capacity > 0, "capacity")
	add(w.Latency.SlowRoutes > 0, "slow routes")
	add(w.Latency.StallTimes > 0, "stall")
	add(w.Stated == nil && w.Limit == nil && len(w.Troubles) == 0, "no trouble")
	for _, t := range w.Troubles {
		by := "trouble by " + string(t.By)
		add(!t.total() && !t.Permission, by)
		add(t.total(), "outage")
		add(t.Permission, "permissions")
		add(t.Rejects() && t.Retry != NoRetryAfter, "rejections with Retry-After")
		add(t.Status == 429 && t.Retry == NoRetryAfter, "bare 429s")
		add(!t.Rejects() && !t.Permission, "failures")
	}
	if s := w.Stated; s != nil {
		features = append(features, "states "+string(s.Kind))
	}
	if l := w.Limit; l != nil {
		features = append(features, "limit "+string(l.Kind), "limit by "+string(l.Scope), "dialect "+string(l.Dialect.Headers))
		add(l.Load < 1, "demand below the limit")
		add(l.Load >= 1 && l.Load < 4, "demand 1 to 4 x the limit")
		add(l.Load >= 4, "demand over 4 x the limit")
		add(l.Window >= 15*time.Minute, "long window")
		add(l.Ban.After > 0, "ban")
		add(l.Others > 0, "other clients")
		add(l.Backends > 1, "several backends")
	}
	return features
}

// A purpose distinguishes the random numbers that are drawn for the same call or attempt.
type purpose uint64

const (
	forLatency purpose = iota + 1
	forShape
	forLateness
	forBackend
	forFault
	forPick
	forThinking
	forOverload
	forStatement
	forOthers
	forHeaders
)

// hash returns a random number that is determined by the seed of w, the purpose and two keys.
func (w *World) hash(p purpose, a, b int) uint64 {
	x := mix(w.Seed + uint64(p)*0x9e3779b97f4a7c15)
	x = mix(x ^ uint64(a)*0xbf58476d1ce4e5b9)
	return mix(x ^ uint64(b)*0x94d049bb133111eb)
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom
// number generators, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// uniform returns a random number in [0, 1) that is determined like hash.
func (w *World) uniform(p purpose, a, b int) float64 {
	return float64(w.hash(p, a, b)>>11) / (1 << 53)
}

// random returns a generator of random numbers that is determined by the seed and n.
func (w *World) random(p purpose, n int) *rand.Rand {
	return rand.New(rand.NewPCG(w.Seed, w.hash(p, n, 0)))
}

// late returns by how much the timer of an attempt fires late.
func (w *World) late(call, attempt int) time.Duration {
	return time.Duration(w.uniform(forLateness, call, attempt) * float64(w.Lateness))
}

// short formats d with about three digits.
func short(d time.Duration) string {
	for _, unit := range []time.Duration{time.Minute, time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100).String()
		}
	}
	return d.String()
}

// percent formats a share as a percentage.
func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }
