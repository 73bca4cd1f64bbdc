package throttle

import "time"

// NewPermitsPerPeriod returns a limiter of n units per period. All of them are
// there again when a period begins; those left over from the one before are lost.
// Periods are counted from the creation:
//
//	units left
//	 3 ┤▔▔▁      ▏▔▔▔▔▔▔▔▏▔▔▁     ▏▔▔▔
//	 1 ┤  ▔▔▁    ▏       ▏  ▔▔▔▔▔▔▏
//	 0 ┼────▔▔▔▔▔┼───────┼────────┼───▶ time
//	 creation   +1      +2       +3 periods
//
// It is a FixedWindow that is anchored AtCreation: the period of an instant is
// worked out from the instant, so that there is nothing to refresh, no goroutine
// that would do it, and nothing to stop.
//
// Invariant: within one period no more than n units are granted and kept.
//
// The odd case is a claim right before a period begins and one right after: as in
// every fixed window, 2n units may be used within an instant. TokenBucket does not
// allow that.
//
// A nil clk is the system clock. It panics if n or period is not positive.
func NewPermitsPerPeriod(n int64, period time.Duration, clk Clock) *FixedWindow {
	return NewFixedWindow(FixedWindowConfig{Count: n, Align: AtCreation, Per: period}, clk)
}
