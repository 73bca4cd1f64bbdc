package backoff

import (
	"math"
	"sync"
	"time"
)

// A Budget limits retries to a fraction of the requests, so that clients of a server that is
// down increase its load by that fraction and not by a multiple.
//
// Every request deposits Ratio of a retry; every retry withdraws one before it is sent.
// Requests and retries are forgotten after Window:
//
//	              |<-------------- Window --------------->|
//	requests  ····|···•·•··•·•·•·•··•·•·•·•·•···•·•·•·•·•·| × Ratio
//	retries   ····|···x·······························x···|     + MinPerSecond·Window
//	──────────────+───────────────────────────────────────+──▶ time
//	         forgotten                                   now
//
// Invariant: when a retry is granted, the number of retries granted within the last Window,
// including this one, is at most Ratio times the number of requests of that Window, plus
// MinPerSecond·Window. To bound memory, the Window is divided into tenths; at their boundaries
// requests are undercounted and retries overcounted. See TestBudget_holdsItsInvariant.
//
// MinPerSecond exists for programs that send few requests: without it, a fraction of few
// requests would not allow even one retry.
//
// The zero Budget allows 20 % and 10 retries per second, as the budgets of Finagle and tower
// do; that suits one process that calls many servers. In a fleet the MinPerSecond of all
// processes add up. Set it so that their sum is acceptable: 200 clients at 0.1 allow 20 retries
// per second.
//
// A Budget may be shared by any number of users and must not be copied. Its fields must not be
// changed after the first use. If the clock steps back, the latest reading is used instead.
type Budget struct {
	// Ratio is the number of retries per request. Zero means 0.2. A negative value means 0.
	Ratio float64

	// MinPerSecond is the number of retries per second that are allowed in addition to Ratio.
	// Zero means 10. A negative value means 0, and +Inf means that retries are not limited.
	MinPerSecond float64

	// Window is the time for which requests and retries count, at least 1/MinPerSecond
	// seconds. Zero and negative values mean 10 seconds.
	Window time.Duration

	mu      sync.Mutex
	started bool
	start   time.Time
	last    time.Duration // latest reading of the clock, as time since start
	ring    [tenths + 1]tenth
	retried int64
	refused int64
}

// tenths is the number of parts of a Window.
const tenths = 10

// A tenth counts the requests and retries of one part of a Window.
type tenth struct {
	index    int64 // number of parts between start and this one
	requests int64
	retries  int64
}

// Deposit counts a request, the first attempt of a call, at now.
func (b *Budget) Deposit(now time.Time) { b.DepositN(now, 1) }

// DepositN counts n requests at now, for callers that report requests in batches.
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

// A BudgetState contains the counters of a Budget.
type BudgetState struct {
	Requests int64 // requests within the Window
	Retries  int64 // retries within the Window
	Retried  int64 // retries granted since the first use
	Refused  int64 // retries rejected since the first use
}

// Snapshot returns the counters at now. It does not change the Budget.
func (b *Budget) Snapshot(now time.Time) BudgetState {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := BudgetState{Retried: b.retried, Refused: b.refused}
	s.Requests, s.Retries = b.count(b.read(now))
	return s
}

// Allowance returns the number of retries that are allowed within the Window at now. Those of
// BudgetState.Retries count against it. It is math.MaxInt64 if retries are not limited.
func (b *Budget) Allowance(now time.Time) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests, _ := b.count(b.read(now))
	if n := b.allowance(requests); n < math.MaxInt64 {
		return int64(n)
	}
	return math.MaxInt64
}

// read returns now as time since start, at least the latest reading.
func (b *Budget) read(now time.Time) time.Duration {
	if !b.started {
		b.started, b.start = true, now
	}
	return max(now.Sub(b.start), b.last)
}

// at returns the tenth that contains t. It resets the tenth if it held an older part.
func (b *Budget) at(t time.Duration) *tenth {
	i := int64(t / b.part())
	p := &b.ring[i%int64(len(b.ring))]
	if p.index != i {
		*p = tenth{index: i}
	}
	return p
}

// count returns the numbers of requests and retries within the Window before t. Requests are
// forgotten up to one tenth of the Window too early, and retries up to one tenth too late.
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

// allows reports whether the given number of retries is allowed for the number of requests.
func (b *Budget) allows(requests, retries int64) bool {
	return float64(retries) <= b.allowance(requests)
}

// allowance returns the number of retries within the Window that are allowed for the number
// of requests.
func (b *Budget) allowance(requests int64) float64 {
	const rounding = 1e-9 // in float64, 100*0.29 is slightly less than 29
	window := (b.part() * tenths).Seconds()
	return b.ratio()*float64(requests) + b.minPerSecond()*window + rounding
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
