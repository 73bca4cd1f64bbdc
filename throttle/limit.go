package throttle

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"time"
)

// A Limit allows Count units per Per, of which up to Burst may be used at one time.
type Limit struct {
	// Name is returned as Decision.Policy. Empty means the result of String.
	Name string

	// Count is the number of units restored in each Per. It must be positive.
	Count int64

	// Per is the period of Count. It must be positive.
	Per time.Duration

	// Burst is the maximum number of units that can be used at one time. Zero means Count.
	Burst int64
}

// maxRefill is the longest time that a limit may take to refill from empty, 36 years in
// nanoseconds: sums of a few fit into an int64.
const maxRefill = math.MaxInt64 / 8

// PerSecond returns a Limit of n units per second with a burst of n.
func PerSecond(n int64) Limit { return Limit{Count: n, Per: time.Second} }

// PerMinute returns a Limit of n units per minute with a burst of n.
func PerMinute(n int64) Limit { return Limit{Count: n, Per: time.Minute} }

// PerHour returns a Limit of n units per hour with a burst of n.
func PerHour(n int64) Limit { return Limit{Count: n, Per: time.Hour} }

// WithBurst returns l with a burst of n units. Zero means Count.
func (l Limit) WithBurst(n int64) Limit {
	l.Burst = n
	return l
}

// Validate returns an error that states the invalid field if l is invalid.
func (l Limit) Validate() error {
	switch {
	case l.Count <= 0:
		return fmt.Errorf("throttle: limit %q: Count is %d: it must be positive", l.Name, l.Count)
	case l.Per <= 0:
		return fmt.Errorf("throttle: limit %q: Per is %v: it must be positive", l.Name, l.Per)
	case l.Burst < 0:
		return fmt.Errorf("throttle: limit %q: Burst is %d: it must be positive, or 0 for Count", l.Name, l.Burst)
	case float64(l.burst())/float64(l.Count)*float64(l.Per) > maxRefill:
		return fmt.Errorf("throttle: limit %q: a burst of %d takes longer than 36 years to come back: lower Burst or raise Count", l.Name, l.burst())
	}
	return nil
}

// String returns l in words, such as "10 per 1s, burst 5".
func (l Limit) String() string {
	s := strconv.FormatInt(l.Count, 10) + " per " + l.Per.String()
	if l.burst() != l.Count {
		s += ", burst " + strconv.FormatInt(l.burst(), 10)
	}
	return s
}

func (l Limit) burst() int64 { return cmp.Or(l.Burst, l.Count) }

// checkNoBurst returns an error if l has a burst other than Count.
func (l Limit) checkNoBurst(kind string) error {
	if l.burst() != l.Count {
		return fmt.Errorf("throttle: %s %q: Burst is %d: it has none: leave it 0", kind, l.Name, l.Burst)
	}
	return nil
}
