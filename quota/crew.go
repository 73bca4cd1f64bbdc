package quota

import (
	"math"
	"slices"
	"time"

	"github.com/heed-go/heed/throttle"
)

// What is left of a quota, as a process hears it, is what all may use together: if
// each took it for its own, ten would send ten times as much in the time of one
// answer. So each has an equal part of one half of it in flight at most. The other
// half may be on its way already: what is sent is not counted in what is left before
// it has arrived. As answers come what is still left is divided anew, so those who
// need little leave the more to others:
//
//	left 60    3 in flight each, of ten
//	left 40    2                            (20 were used meanwhile)
//	left 20    1
//	left 4     1 of every five
//
// Parts are rounded up or down at random, and so the last few are taken by a few.
type crew struct {
	others []member
	draw   float64   // rounds up where it is more than what is missing
	drawn  time.Time // when it was drawn
}

// A member is another process that was heard of.
type member struct {
	id    uint64
	until time.Time // then it counts as gone
}

const (
	maxCrew   = 64              // others that are counted
	goneAfter = 3 * time.Second // without news, or when a window has passed
	goneAtAll = time.Minute     // at the latest
	drawEvery = 50 * time.Millisecond
)

// heard notes that who sent n is there. Where it waits for something it is not
// heard of until then.
func (c *crew) heard(n *news, now time.Time) {
	quiet := time.Duration(0)
	if n.Say == sayShut {
		quiet = n.Wait.duration()
	}
	for _, s := range n.Left {
		quiet = max(quiet, s.Reset.duration())
	}
	until := now.Add(min(quiet+goneAfter, goneAtAll))
	for i := range c.others {
		if m := &c.others[i]; m.id == n.From {
			m.until = later(m.until, until)
			return
		}
	}
	if len(c.others) < maxCrew {
		c.others = append(c.others, member{n.From, until})
	}
}

// peers returns how many other processes use b.
func (b *bucket) peers(now time.Time) int64 {
	c := &b.joint.crew
	c.others = slices.DeleteFunc(c.others, func(m member) bool { return !now.Before(m.until) })
	return int64(len(c.others))
}

// leavesToOthers reports whether a claim as of now has to wait because of others, and
// returns the refusal then. Whoever has to wait anyhow is told why, and for how long,
// by those who say so.
func (b *bucket) leavesToOthers(now time.Time) (d throttle.Decision, leaves bool) {
	if b.peers(now) == 0 {
		return d, false
	}
	if _, open := b.gate.check(now, &b.flight); !open {
		return d, false
	}
	wait, ok := b.mayTake(now)
	if ok {
		return d, false
	}
	d = throttle.Decision{Policy: b.site.names.quota, At: now, Wait: wait, ServerImposed: true}
	b.describe(&d, now)
	return d, true
}

// mayTake reports whether a claim of ours may go as of now, as far as others are
// concerned. If not, wait says when to ask again; 0: when an answer has come.
func (b *bucket) mayTake(now time.Time) (wait time.Duration, ok bool) {
	c, left := &b.joint.crew, b.leastLeft(now)
	if left <= 0 || left == math.MaxInt64 {
		return 0, true // parts do not matter
	}
	if now.Sub(c.drawn) >= drawEvery {
		c.draw, c.drawn = b.site.tracker.random(), now
	}
	all := float64(len(c.others) + 1)
	switch part := int64(float64(left)/(2*all) + c.draw); {
	case b.flight.open < part:
		return 0, true
	case b.flight.open > 0:
		return 0, false
	}
	return c.drawn.Add(drawEvery).Sub(now), false
}

// leastLeft returns what is left of the limit with the fewest units, as of now;
// MaxInt64: there is none, or it begins anew.
func (b *bucket) leastLeft(now time.Time) int64 {
	least := int64(math.MaxInt64)
	for i := range b.told {
		if t := &b.told[i]; !t.probe && !t.slots.are && now.Before(t.reset) {
			least = min(least, t.left(now))
		}
	}
	return least
}
