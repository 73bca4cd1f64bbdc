package quota

import (
	"math"
	"time"
)

// A gate shuts when the server says stop, and opens by one probe.
//
//	shut ──── until ────▶ ajar ──── good answer ────▶ open
//	  ▲                     │
//	  └──── throttled ──────┘   (longer each time)
//
// Many refusals of one burst are one event: only the answer to a claim that was
// sent after the gate had opened shuts it again.
type gate struct {
	until   time.Time // shut until then
	ajar    bool      // from until on, one claim at a time
	strikes int       // times it was shut since the last good answer
	at      time.Time // when it was last shut
	round   uint64    // number of the latest claim sent when it was shut
}

const (
	basePause   = time.Second
	pauseGrowth = 1.6 // each time
	maxPause    = time.Minute
)

// check reports whether a claim may pass as of now. If not, wait says when to ask
// again; 0: when the probe's answer has come.
func (g *gate) check(now time.Time, f *flight) (wait time.Duration, ok bool) {
	if wait = g.until.Sub(now); wait > 0 {
		return wait, false
	}
	return 0, !g.ajar || f.after(g.round) == 0
}

// shut closes the gate because of the answer to claim n. The pause is what the
// server told (0: nothing) or our own, and random in both cases, upwards of what
// was told. It reports whether this was a new event.
func (g *gate) shut(n uint64, now time.Time, told, spread time.Duration, sent uint64, random float64) (anew bool) {
	if anew = n > g.round; anew {
		g.strikes, g.round, g.at, g.ajar = g.strikes+1, sent, now, true
	}
	told = believable(told)
	pause := told
	switch {
	case told > 0:
		pause = told + time.Duration(random*float64(max(g.slack(told), spread)))
	case anew:
		pause = ownPause(g.strikes)
		pause -= time.Duration(random * float64(pause) / 2)
	}
	if until := now.Add(pause); until.After(g.until) {
		g.until = until
	}
	return anew
}

// ownPause is how long the gate stays shut at most where the server does not say.
func ownPause(strikes int) time.Duration {
	return time.Duration(min(float64(basePause)*math.Pow(pauseGrowth, float64(strikes-1)), float64(maxPause)))
}

// slack is how much later than told the probe may come. It grows when a told wait
// turns out to be too short: some servers round down.
func (g *gate) slack(told time.Duration) time.Duration {
	return min(told/40, time.Second) << min(max(g.strikes-1, 0), 5)
}

// good opens the gate if n was the probe.
func (g *gate) good(n uint64) (opened bool) {
	if !g.ajar || n <= g.round {
		return false
	}
	g.ajar, g.strikes = false, 0
	return true
}
