package throttle

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// A Limit says how much is allowed: Count units per Per, of which Burst may come
// at once.
type Limit struct {
	Name  string        // shown as Decision.Policy; "": what String says
	Count int64         // units that come back in each Per; must be positive
	Per   time.Duration // must be positive
	Burst int64         // most units at once; 0: Count
}

// maxRefill is the longest time that a limit may take to refill from empty. It
// leaves room for sums of times in an int64 of nanoseconds.
const maxRefill = math.MaxInt64 / 8 // 36 years

// PerSecond returns a Limit of n units a second, all of which may come at once.
func PerSecond(n int64) Limit { return Limit{Count: n, Per: time.Second} }

// PerMinute returns a Limit of n units a minute, all of which may come at once.
func PerMinute(n int64) Limit { return Limit{Count: n, Per: time.Minute} }

// PerHour returns a Limit of n units an hour, all of which may come at once.
func PerHour(n int64) Limit { return Limit{Count: n, Per: time.Hour} }

// Validate returns an error that says what to change if l can never work.
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

// String returns l as people say it, such as "10 per 1s, burst 5".
func (l Limit) String() string {
	s := strconv.FormatInt(l.Count, 10) + " per " + l.Per.String()
	if l.burst() != l.Count {
		s += ", burst " + strconv.FormatInt(l.burst(), 10)
	}
	return s
}

func (l Limit) burst() int64 {
	if l.Burst == 0 {
		return l.Count
	}
	return l.Burst
}

func (l Limit) policy() string {
	if l.Name == "" {
		return l.String()
	}
	return l.Name
}

// checkNoBurst returns an error if l has a burst of its own, which kind cannot keep.
func (l Limit) checkNoBurst(kind string) error {
	if l.burst() != l.Count {
		return fmt.Errorf("throttle: %s %q: Burst is %d: it has none: leave it 0", kind, l.Name, l.Burst)
	}
	return nil
}
