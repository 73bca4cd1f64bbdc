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
	OpenFor  backoff.Policy // before each claim that asks; nil: 50 ms, doubled up to 500 ms, of which chance takes up to half
	Trace    *BreakerTrace  // nil: nobody is told
	Clock    throttle.Clock // nil: the system clock

	mu          sync.Mutex
	state       state
	generation  uint64 // counts the changes of state: what began before the last is old news
	failures    int    // in a row while closed
	reopens     int    // times in a row that it opened soon after it had closed
	openings    int    // in a row
	openFor     time.Duration
	until       time.Time // open: when to ask; closed: up to when that is soon
	openedAt    time.Time // when it opened
	maxInFlight int       // closed: how many may be on their way; 0: any number
	inFlight    int       // and how many are, if room counts

	nodes map[string]*Breaker // by address; nil for one server
}

const (
	reopenWindow = time.Second
	fullInFlight = 32 // claims on their way, for which connections are there
)

// A BreakerTrace is a set of functions that are told of the changes of a Breaker. Nil ones
// are left out. Those about one node are called in order, while claims wait: they must return
// soon, and must not use the Breaker. Those about several nodes may be called concurrently.
type BreakerTrace struct {
	Opened func(err error)                     // nobody asks any more; err is the last failure
	Closed func(after time.Duration)           // Redis answers again; how long it was open
	Probed func(err error, next time.Duration) // the claim that asked was not answered; the next one asks after that time
}

type state uint8

const (
	stateClosed state = iota
	stateOpen
	stateHalfOpen // open, and one claim asks
)

// Open reports whether claims are kept from Redis, or from at least one of its nodes.
func (b *Breaker) Open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.nodes {
		if n.isOpen() {
			return true
		}
	}
	return b.state != stateClosed
}

// allow lets a claim ask, or returns ErrOpen. What comes of it must be told to leave, with
// the same turn.
func (b *Breaker) allow() (generation uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.state == stateClosed && (b.maxInFlight == 0 || b.inFlight < b.maxInFlight):
		b.inFlight++
		return b.generation, nil
	case b.state == stateOpen && !b.now().Before(b.until):
		b.state = stateHalfOpen
		b.generation++
		return b.generation, nil
	}
	return 0, ErrOpen
}

// An outcome is what came of asking.
type outcome uint8

const (
	outcomeResponse  outcome = iota
	outcomeTimeout           // no answer in time
	outcomeAbandoned         // whoever asked has left, and nothing is known
)

// report tells what came of asking; err is why it failed.
func (b *Breaker) report(generation uint64, o outcome, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if generation != b.generation {
		return
	}
	b.inFlight--
	switch {
	case o == outcomeTimeout:
		b.recordFailure(err)
	case o == outcomeAbandoned && b.state == stateHalfOpen:
		b.state = stateOpen // the next claim asks instead
	case o == outcomeResponse && b.state == stateHalfOpen:
		b.close()
	case o == outcomeResponse:
		b.failures = 0
		if b.maxInFlight > 0 {
			b.maxInFlight = (b.maxInFlight + 1) % (fullInFlight + 1)
		}
	}
}

// recordFailure counts a failure of a claim that asked.
func (b *Breaker) recordFailure(err error) {
	now := b.now()
	if b.state == stateClosed {
		if b.failures++; b.failures >= positiveOr(b.Failures, 5) {
			b.open(now, err)
		}
		return
	}
	b.delayProbe(now)
	if b.Trace != nil && b.Trace.Probed != nil {
		b.Trace.Probed(err, b.openFor)
	}
}

// open lets nobody ask but the next claim, or none for a while if it was open just before.
func (b *Breaker) open(now time.Time, err error) {
	b.openedAt, b.openings, b.openFor = now, 0, 0
	if now.Before(b.until) {
		b.openings = b.reopens
		b.reopens++
		b.delayProbe(now)
	} else {
		b.reopens = 0
		b.setState(stateOpen, now)
	}
	if b.Trace != nil && b.Trace.Opened != nil {
		b.Trace.Opened(err)
	}
}

// delayProbe lets nobody ask for a pause.
func (b *Breaker) delayProbe(now time.Time) {
	b.openings++
	b.openFor = b.openForPolicy().Delay(b.openings, b.openFor)
	b.setState(stateOpen, now.Add(b.openFor))
}

// close lets claims ask, few at first.
func (b *Breaker) close() {
	now := b.now()
	b.failures, b.maxInFlight, b.inFlight = 0, 2, 0
	b.setState(stateClosed, now.Add(reopenWindow))
	if b.Trace != nil && b.Trace.Closed != nil {
		b.Trace.Closed(now.Sub(b.openedAt))
	}
}

func (b *Breaker) setState(s state, until time.Time) {
	b.state, b.until = s, until
	b.generation++
}

// timeToProbe returns how long it is until somebody asks; 0: somebody may.
func (b *Breaker) timeToProbe() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == stateClosed {
		return 0
	}
	return max(b.until.Sub(b.now()), 0)
}

func (b *Breaker) now() time.Time { return throttle.ClockOr(b.Clock).Now() }

func (b *Breaker) openForPolicy() backoff.Policy {
	if b.OpenFor == nil {
		return defaultOpenFor
	}
	return b.OpenFor
}

// With half a second at most, what is left of the second within which a limit should hold
// again is for the client to connect.
var defaultOpenFor backoff.Policy = backoff.Exponential{Base: 50 * time.Millisecond, Max: 500 * time.Millisecond, Jitter: backoff.Equal}

func positiveOr(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}
