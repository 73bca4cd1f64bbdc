package backoff

import (
	"cmp"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
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

	mu       sync.Mutex    // guards the fields below
	part     time.Duration // length of a tenth; zero before the first use
	ratio    float64       // Ratio with its default
	minimum  float64       // retries that are allowed within the Window without any request
	start    time.Time     // start of the first tenth
	last     int64         // number of the latest tenth
	ring     [tenths + 1]tenth
	retried  int64
	rejected int64
}

// tenths is the number of parts of a Window.
const tenths = 10

// A tenth counts the requests and retries of one part of a Window.
type tenth struct {
	number   int64 // number of tenths between start and this one
	requests int64
	retries  int64
}

// Deposit counts n requests, the first attempts of calls, at now.
func (b *Budget) Deposit(now time.Time, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = b.read(now)
	b.tenth(b.last).requests += n
}

// Withdraw reports whether a retry may be sent at now, and counts it if so.
func (b *Budget) Withdraw(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	latest := b.read(now)
	requests, retries := b.count(latest)
	if allowed := b.ratio*float64(requests) + b.minimum; !(float64(retries+1) <= allowed) { // also if allowed is not a number
		b.rejected++
		return false
	}
	b.last = latest
	b.tenth(latest).retries++
	b.retried++
	return true
}

// A BudgetState contains the counters of a Budget.
type BudgetState struct {
	Requests int64 // requests within the Window
	Retries  int64 // retries within the Window
	Retried  int64 // retries granted since the first use
	Rejected int64 // retries rejected since the first use
}

// Snapshot returns the counters at now. It does not change the Budget.
func (b *Budget) Snapshot(now time.Time) BudgetState {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := BudgetState{Retried: b.retried, Rejected: b.rejected}
	s.Requests, s.Retries = b.count(b.read(now))
	return s
}

// Allowance returns the number of retries that are allowed within the Window at now. Those of
// BudgetState.Retries count against it. It is math.MaxInt64 if retries are not limited.
func (b *Budget) Allowance(now time.Time) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	requests, _ := b.count(b.read(now))
	return ticks.Int64(b.ratio*float64(requests) + b.minimum)
}

// read returns the number of the tenth that contains now, or that of the latest tenth if it
// is later. The first call computes the fields that depend on the exported ones.
func (b *Budget) read(now time.Time) int64 {
	if b.part == 0 {
		perSecond := cmp.Or(b.MinPerSecond, 10)
		b.ratio = max(cmp.Or(b.Ratio, 0.2), 0)
		window := cmp.Or(max(b.Window, 0), 10*time.Second)
		if shortest := float64(time.Second) / perSecond; shortest > float64(window) {
			window = toDuration(shortest)
		}
		const rounding = 1e-9 // in float64, 100*0.29 is slightly less than 29
		b.part = max(window/tenths, 1)
		b.minimum = max(perSecond, 0)*(b.part*tenths).Seconds() + rounding
		b.start = now
	}
	return max(int64(now.Sub(b.start)/b.part), b.last)
}

// tenth returns the tenth with the given number. It resets the tenth if it held an older one.
func (b *Budget) tenth(number int64) *tenth {
	p := &b.ring[number%int64(len(b.ring))]
	if p.number != number {
		*p = tenth{number: number}
	}
	return p
}

// count returns the numbers of requests and retries within the Window before the end of the
// latest tenth. Requests are forgotten up to one tenth of the Window too early, and retries up
// to one tenth too late.
func (b *Budget) count(latest int64) (requests, retries int64) {
	for _, p := range b.ring {
		if latest-p.number < tenths {
			requests += p.requests
		}
		if latest-p.number <= tenths {
			retries += p.retries
		}
	}
	return requests, retries
}
