package model

import (
	"cmp"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// Guesses decide how often a request is sent although none may be left, because the server rounds the reset. Many state it in
// whole seconds, so a bucket of 80 a second that holds two states a second whenever it is empty, and one that waits for it
// uses a fortieth:
//
//	stated    2 left                  reset
//	sent      ✓✓  ✓   ✓  ✓  ✓ ✓ ✗    ✓✓
//	              └─ guesses: at a rate that grows with each accepted one, and is lower after a rejected one
//
// A window rejects all guesses until the true reset, so that they become rare: their rate is kept from one wait to the next. One
// that is accepted because a new window has begun, as its response states, shows nothing about the rate.
type guesses struct {
	rate    float64   // per second; 0: there was none
	next    time.Time // the next one is not sent before
	lowered bool      // one was rejected
	sentBy  uint64    // latest claim that was sent then: those up to it lower the rate no further
}

const (
	firstGuessRate = 1.0             // per second
	leastGuessRate = 1. / 64         // the same
	mostGuessRate  = 1000.           // the same
	firstGrowth    = 1. / 4          // part by which the rate grows with an accepted guess, before one was rejected
	guessGrowth    = 1. / 64         // the same, after one was, if they are frequent: about one of 30 is rejected
	guessCut       = 3. / 5          // factor after a rejection
	idleGuesses    = 2 * time.Second // without a wait
)

// begin begins a wait, or continues it.
func (g *guesses) begin(now time.Time) {
	g.rate = cmp.Or(g.rate, firstGuessRate)
	g.next = g.nextAt(now)
}

// nextAt returns when the next guess is sent. After a time without a wait, the first one is not sent immediately.
func (g *guesses) nextAt(now time.Time) time.Time {
	if now.Sub(g.next) > idleGuesses {
		return now.Add(min(g.interval(), time.Second) / 2)
	}
	return g.next
}

// dueIn returns the time from now until the next guess; 0: it may be sent now.
func (g *guesses) dueIn(now time.Time) time.Duration { return max(g.nextAt(now).Sub(now), 0) }

func (g *guesses) interval() time.Duration {
	return time.Duration(float64(time.Second) / cmp.Or(g.rate, firstGuessRate))
}

// sent applies that a guess is sent now. After a pause, two may follow each other.
func (g *guesses) sent(now time.Time) {
	g.next = ticks.Later(g.next, now.Add(-g.interval()/2)).Add(g.interval())
}

// accepted applies that a guess was accepted. In a round trip, the rate grows by as much as with one guess, however many are
// in flight.
func (g *guesses) accepted(trip time.Duration) {
	growth := firstGrowth
	if g.lowered {
		growth = min(max(1/(8*g.rate), guessGrowth), firstGrowth)
	}
	g.rate = min(g.rate*(1+growth/max(g.rate*trip.Seconds(), 1)), mostGuessRate)
}

// rejected applies that guess n was rejected when claim sent was the latest.
func (g *guesses) rejected(n, sent uint64, now time.Time) {
	if n <= g.sentBy {
		return
	}
	g.rate, g.lowered, g.sentBy = max(g.rate*guessCut, leastGuessRate), true, sent
	g.next = ticks.Later(g.next, now.Add(g.interval()))
}
