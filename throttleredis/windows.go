package throttleredis

import (
	"cmp"
	"fmt"
	"time"

	"github.com/heed-go/heed/throttle"
)

// FixedWindow returns a limiter that behaves like throttle.NewFixedWindow. With AtCreation,
// windows count from the Unix epoch, because the processes have no creation time in common.
// FixedWindow panics if q or s is invalid.
func (s *Store) FixedWindow(q throttle.FixedWindowConfig) *Limiter { return s.limiter(fixedWindow(q)) }

func fixedWindow(q throttle.FixedWindowConfig) limit {
	first, per := int64(0), micros(q.Per)
	if q.Align == throttle.AtFirst {
		first = 1
	}
	l := limit{
		algorithm: "fixedwindow",
		err:       cmp.Or(q.Validate(), validateMicros("fixed window", q.Name, q.Per), validateCount("fixed window", q.Name, q.Count)),
		name:      q.Name,
		policy:    cmp.Or(q.Name, q.String()),
		shape:     []any{per, q.Align, q.Zone},
		capacity:  q.Count,
		per:       q.Per,
		args:      floats(q.Count, per, first, 0, 0, 0, 0),
		newShare: func(n int64) throttle.Limiter {
			part := q
			if part.Name, part.Count = cmp.Or(q.Name, q.String()), max(q.Count/n, 1); q.Per > 0 {
				part.Per = evenShareOf(throttle.Limit{Count: q.Count, Per: q.Per}, n).Per
			}
			return throttle.NewFixedWindow(part)
		},
	}
	if q.Per == 0 && l.err == nil {
		l.calendar = &calendar{quota: q}
	}
	if l.window = q.Per; q.Align == throttle.AtFirst { // a window would begin with units that are taken ahead
		return l
	}
	l.newRule = func(EventualOptions) usageRule { return &windowUsage{config: q} }
	l.lease, l.leaseTime = func(p part) time.Duration { return duration(p.reset(), 1) }, leaseTime
	if q.Per > 0 {
		l.leaseTime = q.Per / 4
	}
	return l
}

// PermitsPerPeriod returns a FixedWindow of n units per period. Periods count from the Unix
// epoch. It panics if n or period is not positive, or s is invalid.
func (s *Store) PermitsPerPeriod(n int64, period time.Duration) *Limiter {
	return s.FixedWindow(throttle.FixedWindowConfig{Count: n, Align: throttle.AtCreation, Per: period})
}

// SlidingLog returns a limiter that behaves like throttle.NewSlidingLog. It panics if l or
// s is invalid.
func (s *Store) SlidingLog(l throttle.SlidingLogConfig) *Limiter { return s.limiter(slidingLog(l)) }

func slidingLog(l throttle.SlidingLogConfig) limit {
	rejected := int64(0)
	if l.CountRejected {
		rejected = 1
	}
	gap := micros(l.MinGap + 999)
	r := slidingLimit("sliding log", l.Limit, l.Validate(), "slidinglog", func(n int64) throttle.Limiter {
		return throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: evenShareOf(l.Limit, n), MinGap: l.MinGap, CountRejected: l.CountRejected})
	}, micros(l.Limit.Per), gap, rejected, 0)
	r.countsRejections = l.CountRejected
	return r
}

// SlidingCounter returns a limiter that behaves like throttle.NewSlidingCounter. It panics
// if c or s is invalid.
func (s *Store) SlidingCounter(c throttle.SlidingCounterConfig) *Limiter {
	return s.limiter(slidingCounter(c))
}

func slidingCounter(c throttle.SlidingCounterConfig) limit {
	share := func(n int64) throttle.Limiter {
		part := c
		part.Limit = evenShareOf(c.Limit, n)
		return throttle.NewSlidingCounter(part)
	}
	err := c.Validate()
	if c.Parts > 0 { // a log with one entry for each sub-window
		if err == nil && int64(c.Parts) > micros(c.Limit.Per) {
			err = fmt.Errorf("throttleredis: sliding counter %q: Parts is %d: there must be no more than microseconds in Per", c.Limit.Name, c.Parts)
		}
		return slidingLimit("sliding counter", c.Limit, err, "slidinglog", share, micros(c.Limit.Per), 0, 0, int64(c.Parts))
	}
	floor := int64(0)
	if c.RoundDown {
		floor = 1
	}
	l := slidingLimit("sliding counter", c.Limit, err, "slidingcounter", share, micros(c.Limit.Per), floor)
	per := micros(c.Limit.Per)
	l.lease, l.leaseTime = func(p part) time.Duration { return duration(per-p.now()%per, 1) }, c.Limit.Per/4
	l.window, l.newRule = c.Limit.Per, func(EventualOptions) usageRule {
		return &windowUsage{config: throttle.FixedWindowConfig{Count: c.Limit.Count, Per: c.Limit.Per}, sliding: true, roundDown: c.RoundDown}
	}
	return l
}

// slidingLimit returns a limit over a sliding window. The first of args is the window, and the last
// the number of its parts, if there are any.
func slidingLimit(kind string, l throttle.Limit, err error, algorithm string, share func(n int64) throttle.Limiter, args ...int64) limit {
	return limit{
		algorithm: algorithm,
		err:       cmp.Or(err, validateMicros(kind, l.Name, l.Per), validateCount(kind, l.Name, l.Count)),
		name:      l.Name,
		policy:    cmp.Or(l.Name, l.String()),
		shape:     []any{args[0], args[len(args)-1]},
		capacity:  l.Count,
		per:       l.Per,
		args:      floats(append([]int64{l.Count}, args...)...),
		newShare:  share,
	}
}

// Concurrency returns a limiter that behaves like throttle.NewConcurrency. MaxAge must be
// set, because a process that crashes does not end its claims and would hold their units
// indefinitely. Concurrency panics if c or s is invalid.
func (s *Store) Concurrency(c throttle.ConcurrencyConfig) *Limiter { return s.limiter(concurrency(c)) }

func concurrency(c throttle.ConcurrencyConfig) limit {
	err := c.Validate()
	if err == nil && c.MaxAge == 0 {
		err = fmt.Errorf("throttleredis: concurrency %q: MaxAge is 0: say after how long the units of a process that died are lost", c.Name)
	}
	return limit{
		algorithm:     "concurrency",
		err:           cmp.Or(err, validateCount("concurrency", c.Name, c.Count)),
		name:          c.Name,
		policy:        cmp.Or(c.Name, c.String()),
		capacity:      c.Count,
		holdsUntilEnd: true,
		args:          floats(c.Count, min(max(micros(c.MaxAge), 1), maxWindow)),
		newShare: func(n int64) throttle.Limiter {
			return throttle.NewConcurrency(throttle.ConcurrencyConfig{Name: cmp.Or(c.Name, c.String()), Count: max(c.Count/n, 1), MaxAge: c.MaxAge})
		},
	}
}

// micros returns d in whole microseconds, rounded down.
func micros(d time.Duration) int64 { return int64(d / time.Microsecond) }

// anchorMicros returns the first microsecond since the Unix epoch that is not before t. The zero
// time means the epoch.
func anchorMicros(t time.Time) int64 {
	us := t.UnixMicro()
	switch {
	case t.IsZero():
		return 0
	case time.UnixMicro(us).Before(t):
		us++
	}
	return us
}

// validateMicros returns an error if per is not a whole number of microseconds.
func validateMicros(kind, name string, per time.Duration) error {
	if per%time.Microsecond == 0 {
		return nil
	}
	return fmt.Errorf("throttleredis: %s %q: Per is %v: it must be whole microseconds: the server's clock shows no less", kind, name, per)
}

// validateCount returns an error if n is more than a script can count.
func validateCount(kind, name string, n int64) error {
	if n <= maxCount {
		return nil
	}
	return fmt.Errorf("throttleredis: %s %q: %d units are more than a script can count: it must be 2^50 or less", kind, name, n)
}
