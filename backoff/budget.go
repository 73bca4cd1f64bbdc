package backoff

import (
	"sync"
	"time"
)

// Budget bounds retries to a share of the requests, so that clients of a server
// that is down add to its load by that share and not by a multiple.
//
// Every request deposits Ratio of a retry; every retry withdraws one, before it is
// sent. Both are forgotten after Window:
//
//	              |<-------------- Window --------------->|
//	requests  ····|···•·•··•·•·•·•··•·•·•·•·•···•·•·•·•·•·| × Ratio
//	retries   ····|···x·······························x···|     + Floor·Window
//	──────────────+───────────────────────────────────────+──▶ time
//	         forgotten                                   now
//
// Invariant: when a retry is granted, those granted within the last Window, itself
// included, are at most Ratio times the requests of that Window plus Floor·Window.
// Time is cut into tenths of the Window to keep that much memory and no more, and
// what falls between them is decided against the retry: see
// TestBudget_holdsItsInvariant.
//
// The odd case is a program that sends little: a share of nearly nothing would
// forbid even the first retry, hence the Floor.
//
// The zero Budget allows 20 % and 10 a second, as those of Finagle and tower do;
// that suits one process in front of many servers. In a fleet, whose floors add up,
// set Floor so that all of them together do no harm: 200 clients at 0.1 are 20 a
// second.
//
// A Budget may be shared by any number of users and must not be copied. Fields must
// not change after the first use. A reading of the clock older than one before
// counts as that one.
type Budget struct {
	Ratio        float64       // retries per request; below 0: none; 0: 0.2
	MinPerSecond float64       // retries per second on top; below 0: none, +Inf: no bound at all; 0: 10
	Window       time.Duration // how long requests and retries count, no less than 1/Floor seconds; 0 or below: 10 s

	mu      sync.Mutex
	started bool
	start   time.Time
	last    time.Duration // latest reading, since start
	ring    [tenths + 1]tenth
	retried int64
	refused int64
}

// tenths is how many parts a Window is cut into.
const tenths = 10

// A tenth counts what happened in one part of a Window.
type tenth struct {
	index    int64 // parts between start and this one
	requests int64
	retries  int64
}

// Deposit counts a request at now, the first attempt of a call.
func (b *Budget) Deposit(now time.Time) { b.DepositN(now, 1) }

// DepositN counts n requests at now, for callers that count many before they look
// at the clock.
func (b *Budget) DepositN(now time.Time, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = b.read(now)
	b.at(b.last).requests += n
}

// Withdraw reports whether a retry may be sent at now, and counts it if so.
func (b *Budget) Withdraw(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.read(now)
	if requests, retries := b.count(t); !b.allows(requests, retries+1) {
		b.refused++
		return false
	}
	b.last = t
	b.at(t).retries++
	b.retried++
	return true
}

// BudgetState is what a Budget has seen.
type BudgetState struct {
	Requests int64 // within the Window
	Retries  int64 // within the Window
	Retried  int64 // retries granted, ever
	Refused  int64 // retries refused, ever
}

// Snapshot returns the state at now and changes nothing.
func (b *Budget) Snapshot(now time.Time) BudgetState {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := BudgetState{Retried: b.retried, Refused: b.refused}
	s.Requests, s.Retries = b.count(b.read(now))
	return s
}

// read returns now as time since start.
func (b *Budget) read(now time.Time) time.Duration {
	if !b.started {
		b.started, b.start = true, now
	}
	return max(now.Sub(b.start), b.last)
}

// at returns the tenth that t is in, emptied if it was an older one.
func (b *Budget) at(t time.Duration) *tenth {
	i := int64(t / b.part())
	p := &b.ring[i%int64(len(b.ring))]
	if p.index != i {
		*p = tenth{index: i}
	}
	return p
}

// count returns the requests and retries within a Window up to t. Requests are
// forgotten up to a tenth of it too early and retries too late, never the other way
// round.
func (b *Budget) count(t time.Duration) (requests, retries int64) {
	now := int64(t / b.part())
	for _, p := range b.ring {
		if now-p.index < tenths {
			requests += p.requests
		}
		if now-p.index <= tenths {
			retries += p.retries
		}
	}
	return requests, retries
}

// allows reports whether that many retries are allowed with that many requests.
func (b *Budget) allows(requests, retries int64) bool {
	const rounding = 1e-9 // 100 times 0.29 is 29 to people, and a little less to a float64
	window := (b.part() * tenths).Seconds()
	return float64(retries) <= b.ratio()*float64(requests)+b.minPerSecond()*window+rounding
}

// part returns the length of a tenth.
func (b *Budget) part() time.Duration {
	w := orDefault(b.Window, 10*time.Second)
	if f := b.minPerSecond(); f > 0 {
		w = max(w, toDuration(float64(time.Second)/f))
	}
	return max(w/tenths, 1)
}

func (b *Budget) ratio() float64 {
	if b.Ratio == 0 {
		return 0.2
	}
	return max(b.Ratio, 0)
}

func (b *Budget) minPerSecond() float64 {
	if b.MinPerSecond == 0 {
		return 10
	}
	return max(b.MinPerSecond, 0)
}
