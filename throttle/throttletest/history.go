package throttletest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/heed-go/heed/throttle"
)

// histories plays random claims, holds, cancels and feedback. The claims that were used
// must always obey the bound.
func (s *suite) histories() {
	recovery, largest := s.recoveryAndLargest()
	for seed := range uint64(s.Histories) {
		start := epoch
		if seed%3 == 0 {
			start = time.Unix(0, 0)
		}
		h := &history{subject: s.newSubject(start), r: rand.New(rand.NewPCG(seed, 1)), start: start, recovery: recovery, largest: largest}
		for range 80 {
			h.step()
		}
		for _, g := range h.held {
			h.recordUsage(g, g.c.Cost)
		}
		slices.SortStableFunc(h.usages, func(a, b usage) int { return int(min(max(a.at-b.at, -1), 1)) })
		s.checkBound(h.usages, fmt.Sprintf("history with seed %d", seed))
	}
}

// A history is one sequence of random events on one limiter.
type history struct {
	*subject
	r        *rand.Rand
	start    time.Time
	recovery time.Duration // time in which the limiter recovers
	largest  int64         // largest claim
	held     []*grant
	usages   []usage
	using    int64 // units of claims that have not ended
}

type grant struct {
	c  throttle.Claim
	d  throttle.Decision
	at time.Duration // when it may be used, since start
}

func (h *history) step() {
	h.advance()
	h.claim()
	h.held = slices.DeleteFunc(h.held, h.end)
}

// advance advances the clock.
func (h *history) advance() {
	switch n := h.r.IntN(1000); {
	case n < 500:
	case n < 990:
		h.clk.add(time.Duration(h.r.Int64N(int64(h.recovery)/4 + 1)))
	case n < 999:
		h.clk.add(3 * h.recovery)
	default:
		h.clk.add(year)
	}
}

func (h *history) claim() {
	c := throttle.Claim{Key: key, Cost: h.cost(), DryRun: h.r.IntN(16) == 0}
	switch h.r.IntN(8) {
	case 0:
		c.Now = h.clk.Now().Add(-time.Duration(h.r.Int64N(int64(h.recovery) + 1)))
	case 1, 2, 3:
		c.Now = h.clk.Now()
	}
	maxWait := time.Duration(0)
	if h.r.IntN(2) == 0 {
		maxWait = time.Duration(h.r.Int64N(2*int64(h.recovery) + 1))
	}
	reserve := h.reserveAhead
	if h.r.IntN(8) == 0 {
		reserve = h.reserveAfterWait
	}
	if d := reserve(c, maxWait); d.OK && !c.DryRun {
		h.granted(c, d)
	}
}

func (h *history) cost() int64 {
	switch h.r.IntN(16) {
	case 0:
		return h.largest
	case 1:
		return h.largest + 1
	}
	return 1 + h.r.Int64N(min(h.largest, 12))
}

func (h *history) granted(c throttle.Claim, d throttle.Decision) {
	at := d.At
	if at.IsZero() {
		at = h.clk.Now()
	}
	g := &grant{c, d, at.Add(d.Wait).Sub(h.start)}
	h.using += c.Cost
	if h.Concurrency > 0 && h.using > h.Concurrency {
		h.Fatalf("%d units are in flight at a time; the bound is %d", h.using, h.Concurrency)
	}
	h.held = append(h.held, g)
}

// end sometimes ends a claim, and reports whether it did. A claim that was used counts as
// used at the first instant at which it could be.
func (h *history) end(g *grant) bool {
	c := g.c
	c.Now = time.Time{}
	if h.r.IntN(2) == 0 {
		c.Now = h.clk.Now()
	}
	f := throttle.Feedback{Now: c.Now}
	switch n := h.r.IntN(32); {
	case n < 3:
		h.l.Report(h.Context(), c, g.d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		h.using -= c.Cost
		return true
	case n < 5:
		f.State = throttle.Ongoing
		h.observe(c.Cost, g.d, f)
		return false
	case n < 8:
		h.recordUsage(g, c.Cost)
		h.observe(c.Cost, g.d, f)
		return true
	case n == 8:
		f.Cost = 1 + h.r.Int64N(c.Cost)
		h.recordUsage(g, f.Cost)
		h.observe(c.Cost, g.d, f)
		return true
	}
	return false
}

// recordUsage records that n units of g were used.
func (h *history) recordUsage(g *grant, n int64) {
	h.usages = append(h.usages, usage{g.at, n})
	h.using -= g.c.Cost
}
