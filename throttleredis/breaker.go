package throttleredis

import (
	"errors"
	"sync"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/throttle"
)

// ErrOpen is the error of claims that a Breaker keeps from Redis.
var ErrOpen = errors.New("throttleredis: the breaker is open: Redis does not answer, and is asked again in a moment")

// A Breaker keeps a Redis that is away from costing each claim a timeout. After some
// failures in a row nobody asks any more, but for one claim at once, and then one after
// each pause:
//
//	           failures in a row               it fails:
//	closed ───────────────────────▶ one claim ───────────▶ open for a pause,
//	  ▲                               asks    ◀─────────── longer each time
//	  └────── it is answered ──────────┘       then
//
// Only a claim that gets no answer is a failure. An error that Redis answers with came in
// time, and may concern one key alone.
//
// A Redis that has just come back is not asked by all at once, who would first have to
// connect: each answer lets one claim more be on its way, up to 32, and then any number.
//
// Invariant: unless it is closed, one claim at a time asks, and none before its pause is
// over.
//
// The odd case is a process that was stalled itself, by others who need the processor: all
// its claims have waited too long then, and nothing is wrong with Redis. The claim that asks
// at once finds that out. Where it happens again and again, each time within a second, Redis
// may be overloaded, and the Breaker begins with a pause, longer each time.
//
// The zero Breaker is ready to use. Share one among the limits that are kept in one place:
// then they learn of an outage together. For limits on a ClusterClient or a Ring it keeps one
// state per node, so that a node that is away does not keep claims from the others. Its fields
// must not change once it is in use, and it must not be copied.
type Breaker struct {
	Failures int            // in a row, that open it; 0: 5
	Pause    backoff.Policy // before each claim that asks; nil: 50 ms, doubled up to 500 ms, of which chance takes up to half
	Trace    *BreakerTrace  // nil: nobody is told
	Clock    throttle.Clock // nil: the system clock

	mu       sync.Mutex
	state    state
	turn     uint64 // counts the changes of state: what began before the last is old news
	failures int    // in a row while closed
	again    int    // times in a row that it opened soon after it had closed
	pauses   int    // in a row
	pause    time.Duration
	until    time.Time // open: when to ask; closed: up to when that is soon
	since    time.Time // when it opened
	room     int       // closed: how many may be on their way; 0: any number
	running  int       // and how many are, if room counts

	nodes map[string]*Breaker // by address; nil for one server
}

const (
	soon = time.Second
	many = 32 // claims on their way, for which connections are there
)

// A BreakerTrace is a set of functions that are told of the changes of a Breaker. Nil ones
// are left out. Those about one node are called in order, while claims wait: they must return
// soon, and must not use the Breaker. Those about several nodes may be called concurrently.
type BreakerTrace struct {
	Opened func(err error)                     // nobody asks any more; err is the last failure
	Closed func(after time.Duration)           // Redis answers again; how long it was open
	Asked  func(err error, next time.Duration) // the claim that asked was not answered; the next one asks after that time
}

type state uint8

const (
	closed state = iota
	open
	asking // open, and one claim asks
)

// Open reports whether claims are kept from Redis, or from at least one of its nodes.
func (b *Breaker) Open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.nodes {
		if n.away() {
			return true
		}
	}
	return b.state != closed
}

// enter lets a claim ask, or returns ErrOpen. What comes of it must be told to leave, with
// the same turn.
func (b *Breaker) enter() (turn uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state == closed && (b.room == 0 || b.running < b.room):
		b.running++
		return b.turn, nil
	case b.state == open && !b.now().Before(b.until):
		b.state = asking
		b.turn++
		return b.turn, nil
	}
	return 0, ErrOpen
}

// An outcome is what came of asking.
type outcome uint8

const (
	answered  outcome = iota
	silent            // no answer in time
	abandoned         // whoever asked has left, and nothing is known
)

// leave tells what came of asking; err is why it failed.
func (b *Breaker) leave(turn uint64, o outcome, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if turn != b.turn {
		return
	}
	b.running--
	switch {
	case o == silent:
		b.fail(err)
	case o == abandoned && b.state == asking:
		b.state = open // the next claim asks instead
	case o == answered && b.state == asking:
		b.close()
	case o == answered:
		b.failures = 0
		if b.room > 0 {
			b.room = (b.room + 1) % (many + 1)
		}
	}
}

// fail counts a failure of a claim that asked.
func (b *Breaker) fail(err error) {
	now := b.now()
	if b.state == closed {
		if b.failures++; b.failures >= or(b.Failures, 5) {
			b.open(now, err)
		}
		return
	}
	b.rest(now)
	if b.Trace != nil && b.Trace.Asked != nil {
		b.Trace.Asked(err, b.pause)
	}
}

// open lets nobody ask but the next claim, or none for a while if it was open just before.
func (b *Breaker) open(now time.Time, err error) {
	b.since, b.pauses, b.pause = now, 0, 0
	if now.Before(b.until) {
		b.pauses = b.again
		b.again++
		b.rest(now)
	} else {
		b.again = 0
		b.turnTo(open, now)
	}
	if b.Trace != nil && b.Trace.Opened != nil {
		b.Trace.Opened(err)
	}
}

// rest lets nobody ask for a pause.
func (b *Breaker) rest(now time.Time) {
	b.pauses++
	b.pause = b.policy().Delay(b.pauses, b.pause)
	b.turnTo(open, now.Add(b.pause))
}

// close lets claims ask, few at first.
func (b *Breaker) close() {
	now := b.now()
	b.failures, b.room, b.running = 0, 2, 0
	b.turnTo(closed, now.Add(soon))
	if b.Trace != nil && b.Trace.Closed != nil {
		b.Trace.Closed(now.Sub(b.since))
	}
}

func (b *Breaker) turnTo(s state, until time.Time) {
	b.state, b.until = s, until
	b.turn++
}

// next returns how long it is until somebody asks; 0: somebody may.
func (b *Breaker) next() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == closed {
		return 0
	}
	return max(b.until.Sub(b.now()), 0)
}

func (b *Breaker) now() time.Time { return throttle.ClockOr(b.Clock).Now() }

func (b *Breaker) policy() backoff.Policy {
	if b.Pause == nil {
		return defaultPause
	}
	return b.Pause
}

// With half a second at most, what is left of the second within which a limit should hold
// again is for the client to connect.
var defaultPause backoff.Policy = backoff.Exponential{Base: 50 * time.Millisecond, Max: 500 * time.Millisecond, Jitter: backoff.Equal}

func or(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}
