package quota

import (
	"math"
	"time"
)

// A gate shuts when the server says stop, and opens by one probe.
//
//	shut ──── until ────▶ ajar ──── accepted ────▶ open
//	  ▲                     │
//	  └───── rejected ──────┘   (longer each time)
//
// Many rejections of one burst are one event: only the response to a claim that was
// sent after the gate had opened shuts it again.
//
// An end that the server states is obeyed up to an hour, or up to its window where it
// states one that is longer. Later ends may be mistakes, so one probe is sent after
// Tracker.MaxHold, and then after three, nine ... times as long. If two rejected probes
// each moved the end, probes extend the ban: there are no more until the stated end.
type gate struct {
	until   time.Time     // shut until then
	ajar    bool          // from until on, one claim at a time
	strikes int           // times it was shut since the last accepted request
	at      time.Time     // when it was last shut
	began   time.Time     // when it was shut for the first time since it was open
	gap     time.Duration // without requests that ended the latest hold that the server did not state; 0: none yet
	total   time.Duration // of that hold
	round   uint64        // number of the latest claim sent when it was shut

	estimated bool // the server did not state that to stop

	stated time.Time // the latest end that the server stated; zero: none
	moved  int       // rejected probes that moved it
	early  int       // times that until was earlier than stated
}

const (
	basePause   = time.Second
	pauseGrowth = 1.6 // each time
	maxPause    = time.Minute

	maxStated   = time.Hour              // that a stated end is obeyed without a probe
	maxLate     = 250 * time.Millisecond // that a probe comes after the stated end
	movedBy     = time.Minute            // or more later, and the end has moved
	movedTwice  = 2                      // rejected probes that moved the end, and no more are sent
	defaultHold = 15 * time.Minute
)

// A shutting says how a gate is to be shut.
type shutting struct {
	retryAfter time.Duration // stated; 0: none
	estimated  bool          // the server did not state that to stop
	window     time.Duration // the longest that the server states; 0: none
	maxHold    time.Duration // until the first probe of an end that is too late
	spread     time.Duration // how much later than stated the probe may come, so that several clients do not come together
	sent       uint64        // number of the latest claim
	random     float64
	own        time.Duration // pause if the server states none; 0: a usual one
}

// check reports whether a claim may pass as of now. If not, wait says when to ask
// again; 0: when the response to the probe has come.
func (g *gate) check(now time.Time, f *flight) (wait time.Duration, ok bool) {
	if wait = g.until.Sub(now); wait > 0 {
		return wait, false
	}
	return 0, !g.ajar || f.after(g.round) == 0
}

// shut closes the gate because of the response to claim n. The pause is what the server
// stated or our own, and random in both cases, upwards of what was stated. It reports
// whether this was a new event.
func (g *gate) shut(n uint64, now time.Time, s shutting) (anew bool) {
	if anew = n > g.round; anew {
		g.strikes, g.round, g.at, g.ajar = g.strikes+1, s.sent, now, true
		g.estimated = s.estimated && !g.stated.After(now)
		if g.strikes == 1 {
			g.began = now
		}
	}
	pause := min(max(s.retryAfter, 0), maxDelay)
	switch {
	case pause > 0:
		pause = g.bounded(pause, anew, now, s)
		pause += time.Duration(s.random * float64(max(g.slack(pause), s.spread)))
	case anew && g.stated.After(now): // the probe of a stated end was rejected without a new one
		pause = g.bounded(g.stated.Sub(now), anew, now, s)
	case anew && s.own > 0:
		pause = s.own
	case anew:
		pause = ownPause(g.strikes)
		pause -= time.Duration(s.random * float64(pause) / 2)
	}
	if until := now.Add(pause); until.After(g.until) {
		g.until = until
	}
	return anew
}

// bounded returns when to send the probe of an end that is stated to be so far away.
func (g *gate) bounded(stated time.Duration, anew bool, now time.Time, s shutting) time.Duration {
	end := now.Add(stated)
	if anew && g.strikes > 1 && !g.stated.IsZero() && end.Sub(g.stated) > movedBy {
		g.moved++
	}
	g.stated = later(g.stated, end)
	stated = g.stated.Sub(now) // a rejected probe never shortens a hold
	if stated <= max(maxStated, s.window) || g.moved >= movedTwice {
		return stated
	}
	if anew {
		g.early++
	}
	return min(stated, grown(s.maxHold, g.early-1))
}

// grown returns d times three to the power of n.
func grown(d time.Duration, n int) time.Duration {
	return time.Duration(min(float64(d)*math.Pow(3, float64(max(n, 0))), float64(maxDelay)))
}

// ownPause is how long the gate stays shut at most where the server does not say.
func ownPause(strikes int) time.Duration {
	return time.Duration(min(float64(basePause)*math.Pow(pauseGrowth, float64(strikes-1)), float64(maxPause)))
}

// slack is how much later than stated the probe may come. It grows when a stated wait
// turns out to be too short: some servers round down.
func (g *gate) slack(stated time.Duration) time.Duration {
	return min(stated/40, maxLate) << min(max(g.strikes-1, 0), 5)
}

// good opens the gate if n was the probe.
func (g *gate) good(n uint64, sent time.Time) (opened bool) {
	if !g.ajar || n <= g.round {
		return false
	}
	if g.estimated {
		if due := g.until.Add(basePause); sent.After(due) {
			sent = due // nothing was to be sent: the hold may have ended earlier
		}
		gap, total := sent.Sub(g.at), sent.Sub(g.began)
		if g.gap > 0 && total > 2*g.gap {
			gap = total // probes do not extend it, so it takes so long
		}
		g.gap, g.total = gap, total
	}
	g.open()
	return true
}

// open ends the hold.
func (g *gate) open() {
	g.ajar, g.strikes, g.stated, g.moved, g.early = false, 0, time.Time{}, 0, 0
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
