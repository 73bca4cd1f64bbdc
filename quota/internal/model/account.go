package model

import (
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/quota/internal/statedlimit"
)

// An Account is what the quotas of one account have in common.
type Account struct {
	*Config
	Names  Names
	Memory Memory
	Host   *Host
}

// Names are the names of limits in decisions.
type Names struct{ Quota, RetryAfter, LearnedRate, SlowStart, Overload string }

// A Config is what the quotas of one Tracker have in common.
type Config struct {
	Full      bool               // limits that the server does not state are estimated: rules 6 and 7
	NeverTest bool               // no request is sent to test what the server states
	Pacing    statedlimit.Pacing // how the remaining units are spent
	Random    func() float64     // returns random numbers in [0, 1)
}

// A Host is what the accounts at one host have in common.
type Host struct{ nextTest atomic.Int64 }

// testEvery is the least time between two tests of one host.
const testEvery = time.Second

// testIn returns the time from now until the host may be sent a test.
func (h *Host) testIn(now time.Time) time.Duration {
	if h == nil {
		return 0
	}
	return max(time.Duration(h.nextTest.Load()-now.UnixNano()), 0)
}

// tested records that a test is sent now.
func (h *Host) tested(now time.Time) {
	if h != nil {
		h.nextTest.Store(now.Add(testEvery).UnixNano())
	}
}

// accepts records that a test was accepted now: the other quotas need not wait for theirs.
func (h *Host) accepts(now time.Time) {
	if h != nil {
		h.nextTest.Store(now.UnixNano())
	}
}

// TestIn is testIn for quotas that are no Quota.
func (h *Host) TestIn(now time.Time) time.Duration { return h.testIn(now) }

// Tested is tested for quotas that are no Quota.
func (h *Host) Tested(now time.Time) { h.tested(now) }

// Accepts is accepts for quotas that are no Quota.
func (h *Host) Accepts(now time.Time) { h.accepts(now) }
