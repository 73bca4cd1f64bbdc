package throttleredis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/throttle"
)

// ErrOpen is returned for claims that are not sent to Redis because a Breaker is open.
var ErrOpen = errors.New("throttleredis: the breaker is open: Redis does not respond")

// A Breaker stops sending claims to a Redis that does not respond, so that claims do not
// wait for a timeout. After several consecutive failures it is open: claims fail immediately
// with ErrOpen, except for probes. The first probe is the next claim; a further one follows
// after each pause:
//
//	           consecutive failures          no response
//	closed ───────────────────────▶ probe ───────────▶ open for a pause,
//	  ▲                               │   ◀─────────── longer each time
//	  └────────── response ───────────┘    pause over
//
// Only a claim without a response is a failure. An error that Redis returns arrived in time
// and may concern a single key.
//
// After a probe has succeeded the number of claims in flight is limited, so that not all
// callers connect at the same time: it begins at 2, each response raises it by one up to
// 32, and then there is no limit.
//
// Invariant: while a Breaker is not closed, at most one claim at a time is a probe, and
// none is sent before its pause is over.
//
// Limitations: if the process itself was stalled, because other processes used the CPU, all
// its claims exceed their timeout although Redis is healthy. The first probe, which is sent
// without a pause, then closes the Breaker. If the Breaker opens again within a second of
// closing, Redis may be overloaded; it then starts with a pause, which is longer each time.
//
// The zero Breaker is ready to use. Limits whose state is stored in one place should share
// a Breaker, so that they detect an outage together. For limits on a ClusterClient or a
// Ring it keeps one state per node, so that an unreachable node does not affect claims of
// other nodes. Its fields must not be changed after the first use, and it must not be
// copied.
type Breaker struct {
	// Failures is the number of consecutive failures that open the Breaker. Zero means 5.
	Failures int

	// OpenFor determines the pause before each probe. Nil means exponential: 50 ms, doubled
	// up to 500 ms, with equal jitter.
	OpenFor backoff.Policy

	// Trace holds functions to call on state changes. Nil means none.
	Trace *BreakerTrace

	// Clock is the clock for pauses. Nil means the system clock.
	Clock throttle.Clock

	mu          sync.Mutex
	state       state
	generation  uint64 // number of state changes; a report of an earlier generation is ignored
	failures    int    // consecutive, while closed
	reopens     int    // consecutive times that it opened within reopenWindow of closing
	openings    int    // consecutive pauses
	openFor     time.Duration
	until       time.Time // open: time of the next probe; closed: end of reopenWindow
	openedAt    time.Time // time at which it opened
	maxInFlight int       // closed: maximum number of claims in flight; 0: no limit
	inFlight    int       // claims in flight since the last state change

	events  []func() // calls of Trace that are due, in order
	tracing bool     // a goroutine calls one of them

	nodes map[string]*Breaker // by address; nil for one server
}

const (
	reopenWindow = time.Second
	fullInFlight = 32 // claims in flight from which on there is no limit: enough connections are established
)

// A BreakerTrace holds functions that a Breaker calls when its state changes. A nil
// function is not called. Calls for one node are made in order, one at a time, and without a
// lock held, by a goroutine that has just used Redis: the functions should return quickly, and
// may use the Breaker. Calls for several nodes may be concurrent.
type BreakerTrace struct {
	// Opened is called when the Breaker opens; err is the last failure.
	Opened func(err error)

	// Closed is called when a probe succeeded; after is the time for which the Breaker was
	// open.
	Closed func(after time.Duration)

	// Probed is called when a probe failed; next is the pause before the next one.
	Probed func(err error, next time.Duration)
}

type state uint8

const (
	stateClosed state = iota
	stateOpen
	stateHalfOpen // open, and a probe is in flight
)

// Open reports whether claims are rejected with ErrOpen for Redis, or for at least one of
// its nodes.
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

// allow returns ErrOpen, or admits a claim, whose outcome must be reported with the generation.
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

// An outcome is the result of a claim that was sent to Redis.
type outcome uint8

const (
	outcomeResponse  outcome = iota
	outcomeTimeout           // no response within the timeout
	outcomeAbandoned         // the caller's context ended first, so the state of Redis is unknown
)

// report updates the state with the outcome of an admitted claim, and makes the calls of Trace that
// are due. err is the error of the claim. If another goroutine makes a call of Trace, it also makes
// those that follow. After a panic the next change continues with them.
func (b *Breaker) report(generation uint64, o outcome, err error) {
	if !b.update(generation, o, err) {
		return
	}
	for event := b.nextEvent(); event != nil; event = b.nextEvent() {
		b.call(event)
	}
}

// update updates the state, and reports whether calls of Trace are due.
func (b *Breaker) update(generation uint64, o outcome, err error) (due bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if generation != b.generation {
		return false
	}
	b.inFlight--
	switch {
	case o == outcomeTimeout:
		b.recordFailure(err)
	case o == outcomeAbandoned && b.state == stateHalfOpen:
		b.state = stateOpen // the next claim is the probe instead
	case o == outcomeResponse && b.state == stateHalfOpen:
		b.close()
	case o == outcomeResponse:
		b.failures = 0
		if b.maxInFlight > 0 {
			b.maxInFlight = (b.maxInFlight + 1) % (fullInFlight + 1)
		}
	}
	return len(b.events) > 0
}

// nextEvent returns the next call of Trace, which the caller must make, or nil.
func (b *Breaker) nextEvent() (event func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tracing || len(b.events) == 0 {
		return nil
	}
	event = b.events[0]
	b.events, b.tracing = slices.Delete(b.events, 0, 1), true
	return event
}

// maxEvents limits the calls of Trace that wait for one that does not return. Others are not made.
const maxEvents = 64

func (b *Breaker) addEvent(event func()) {
	if len(b.events) < maxEvents {
		b.events = append(b.events, event)
	}
}

func (b *Breaker) call(event func()) {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.tracing = false
	}()
	event()
}

func (b *Breaker) recordFailure(err error) {
	now := b.now()
	if b.state == stateClosed {
		if b.failures++; b.failures >= cmp.Or(max(b.Failures, 0), 5) {
			b.open(now, err)
		}
		return
	}
	b.delayProbe(now)
	if b.Trace != nil && b.Trace.Probed != nil {
		next := b.openFor
		b.addEvent(func() { b.Trace.Probed(err, next) })
	}
}

// open opens b. The next claim is a probe, unless b closed less than reopenWindow ago: then
// a pause comes first.
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
		b.addEvent(func() { b.Trace.Opened(err) })
	}
}

// delayProbe starts the next pause, after which a claim is a probe.
func (b *Breaker) delayProbe(now time.Time) {
	b.openings++
	b.openFor = cmp.Or(b.OpenFor, defaultOpenFor).Delay(b.openings, b.openFor)
	b.setState(stateOpen, now.Add(b.openFor))
}

// close closes b and limits the number of claims in flight.
func (b *Breaker) close() {
	now := b.now()
	b.failures, b.maxInFlight, b.inFlight = 0, 2, 0
	b.setState(stateClosed, now.Add(reopenWindow))
	if b.Trace != nil && b.Trace.Closed != nil {
		after := now.Sub(b.openedAt)
		b.addEvent(func() { b.Trace.Closed(after) })
	}
}

func (b *Breaker) setState(s state, until time.Time) {
	b.state, b.until = s, until
	b.generation++
}

// timeToProbe returns the time until the next probe may be sent. Zero means now.
func (b *Breaker) timeToProbe() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == stateClosed {
		return 0
	}
	return max(b.until.Sub(b.now()), 0)
}

func (b *Breaker) now() time.Time { return throttle.ClockOr(b.Clock).Now() }

// defaultOpenFor has pauses of at most half a second, so that the client has the rest of a
// second to connect: a limit should hold again within one second after an outage.
var defaultOpenFor backoff.Policy = backoff.Exponential{Base: 50 * time.Millisecond, Max: 500 * time.Millisecond, Jitter: backoff.Equal}

// maxNodes is the maximum number of nodes for which a Breaker keeps separate states.
const maxNodes = 1024

// node returns the Breaker of the node at addr, or b if addr is empty or there are too many nodes.
func (b *Breaker) node(addr string) *Breaker {
	if addr == "" {
		return b
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.nodes[addr]
	if n == nil && len(b.nodes) < maxNodes {
		if b.nodes == nil {
			b.nodes = make(map[string]*Breaker)
		}
		n = &Breaker{Failures: b.Failures, OpenFor: b.OpenFor, Trace: b.Trace, Clock: b.Clock}
		b.nodes[addr] = n
	}
	return cmp.Or(n, b)
}

// isOpen reports whether b itself is not closed, regardless of its nodes.
func (b *Breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state != stateClosed
}

// A nodeLocator returns the address of the node that stores the state of a key, or "" if
// there is only one server or the node is not known yet.
type nodeLocator interface{ nodeOf(key string) string }

func (l *Limiter) nodeOf(key string) string {
	return nodeOf(l.store.Client, func() string { return l.redisKey(key) })
}

// nodeOf returns the node of the first limit: all limits of a key are on one node.
func (a *allOf) nodeOf(key string) string { return a.limits[0].nodeOf(key) }

// doneContext is a context that is done. It prevents a ClusterClient that does not know its
// nodes yet from querying them.
var doneContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// nodeOf returns the address of the node of a ClusterClient or Ring that stores a key.
func nodeOf(client redis.Scripter, key func() string) string {
	var node *redis.Client
	var err error
	switch c := client.(type) {
	case *redis.ClusterClient:
		node, err = c.MasterForKey(doneContext, key())
	case *redis.Ring:
		node, err = c.GetShardClientForKey(key())
	}
	if err != nil || node == nil {
		return ""
	}
	return node.Options().Addr
}
