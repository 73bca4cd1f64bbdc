package throttletest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/heed-go/heed/throttle"
)

// histories plays random claims, holds, cancels and settlements. Whatever happens,
// the claims that were kept obey the bound.
func (s *suite) histories() {
	span, most := s.scale()
	for seed := range uint64(s.Histories) {
		start := epoch
		if seed%3 == 0 {
			start = time.Unix(0, 0)
		}
		h := &history{subject: s.fresh(start), r: rand.New(rand.NewPCG(seed, 1)), start: start, span: span, most: most}
		for range 80 {
			h.step()
		}
		for _, g := range h.held {
			h.keep(g, g.c.Cost)
		}
		slices.SortStableFunc(h.acts, func(a, b act) int { return int(min(max(a.at-b.at, -1), 1)) })
		s.obey(h.acts, fmt.Sprintf("history with seed %d", seed))
	}
}

// A history is one run of random events on one limiter.
type history struct {
	*subject
	r     *rand.Rand
	start time.Time
	span  time.Duration // in which the limiter recovers
	most  int64         // largest claim
	held  []*grant
	acts  []act
	using int64 // units that claims hold which have not ended
}

type grant struct {
	c  throttle.Claim
	d  throttle.Decision
	at time.Duration // when it acts, since start
}

func (h *history) step() {
	h.pass()
	h.claim()
	h.held = slices.DeleteFunc(h.held, h.end)
}

// pass lets time go by.
func (h *history) pass() {
	switch n := h.r.IntN(1000); {
	case n < 500:
	case n < 990:
		h.clk.add(time.Duration(h.r.Int64N(int64(h.span)/4 + 1)))
	case n < 999:
		h.clk.add(3 * h.span)
	default:
		h.clk.add(year)
	}
}

func (h *history) claim() {
	c := throttle.Claim{Key: key, Cost: h.cost(), DryRun: h.r.IntN(16) == 0}
	switch h.r.IntN(8) {
	case 0:
		c.Now = h.clk.Now().Add(-time.Duration(h.r.Int64N(int64(h.span) + 1)))
	case 1, 2, 3:
		c.Now = h.clk.Now()
	}
	if h.r.IntN(2) == 0 {
		c.MaxWait = time.Duration(h.r.Int64N(2*int64(h.span) + 1))
	}
	ask := h.ask
	if h.r.IntN(8) == 0 {
		ask = h.honest
	}
	if d := ask(c); d.OK && !c.DryRun {
		h.granted(c, d)
	}
}

func (h *history) cost() int64 {
	switch h.r.IntN(16) {
	case 0:
		return h.most
	case 1:
		return h.most + 1
	}
	return 1 + h.r.Int64N(min(h.most, 12))
}

func (h *history) granted(c throttle.Claim, d throttle.Decision) {
	at := d.At
	if at.IsZero() {
		at = h.clk.Now()
	}
	g := &grant{c, d, at.Add(d.Wait).Sub(h.start)}
	h.using += c.Cost
	if h.InFlight > 0 && h.using > h.InFlight {
		h.Fatalf("%d units are in flight at a time; the bound is %d", h.using, h.InFlight)
	}
	h.held = append(h.held, g)
}

// end ends a claim now and then, and reports whether it did. A claim that was used
// is an act from the moment on at which it could be.
func (h *history) end(g *grant) bool {
	c := g.c
	c.Now = time.Time{}
	if h.r.IntN(2) == 0 {
		c.Now = h.clk.Now()
	}
	f := throttle.Feedback{Now: c.Now}
	switch n := h.r.IntN(32); {
	case n < 3:
		h.l.Cancel(h.Context(), c, g.d)
		h.using -= c.Cost
		return true
	case n < 5:
		f.More = true
		h.observe(c.Cost, g.d, f)
		return false
	case n < 8:
		h.keep(g, c.Cost)
		h.observe(c.Cost, g.d, f)
		return true
	case n == 8:
		f.Cost = 1 + h.r.Int64N(c.Cost)
		h.keep(g, f.Cost)
		h.observe(c.Cost, g.d, f)
		return true
	}
	return false
}

// keep notes that n units of g were used.
func (h *history) keep(g *grant, n int64) {
	h.acts = append(h.acts, act{g.at, n})
	h.using -= g.c.Cost
}
