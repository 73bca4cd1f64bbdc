package headers

import (
	"math"
	"time"
)

// parseDuration reads a number with a unit, once or several times: 6ms, 1m6.779s,
// "10 seconds", 1d12h. Fractions of a nanosecond round up.
func parseDuration(s string) (time.Duration, bool) {
	if len(s) > maxDateLen {
		return 0, false
	}
	if d, ok := clockDuration(s); ok {
		return d, true
	}
	var total time.Duration
	for seen := false; ; seen = true {
		if s = trimBlanks(s); s == "" {
			return total, seen
		}
		digits := countPrefix(s, func(c byte) bool { return isDigit(c) || c == '.' })
		n, ok := parseDecimal(s[:digits])
		s = trimBlanks(s[digits:])
		letters := countPrefix(s, func(c byte) bool { return isLetter(c) || c >= 0x80 })
		unit := unitOfTime(s[:letters])
		if !ok || unit == 0 {
			return 0, false
		}
		s = s[letters:]
		total = addSaturating(total, n.duration(unit))
	}
}

// clockDuration reads hours, minutes and seconds: 00:01:30.
func clockDuration(s string) (d time.Duration, ok bool) {
	if len(s) != len("00:00:00") || s[2] != ':' || s[5] != ':' {
		return 0, false
	}
	for i, unit := range [...]time.Duration{time.Hour, time.Minute, time.Second} {
		n, ok := twoDigits(s[3*i : 3*i+2])
		if !ok {
			return 0, false
		}
		d += time.Duration(n) * unit
	}
	return d, true
}

func unitOfTime(s string) time.Duration {
	var buf [16]byte
	switch string(toLower(buf[:], s)) {
	case "ns":
		return 1
	case "us", "µs", "μs":
		return time.Microsecond
	case "ms", "milli", "millis", "millisecond", "milliseconds":
		return time.Millisecond
	case "s", "sec", "secs", "second", "seconds":
		return time.Second
	case "m", "min", "mins", "minute", "minutes":
		return time.Minute
	case "h", "hr", "hrs", "hour", "hours":
		return time.Hour
	case "d", "day", "days":
		return 24 * time.Hour
	case "w", "week", "weeks":
		return 7 * 24 * time.Hour
	}
	return 0
}

// addSaturating returns a+b, at most the longest duration there is. Neither is negative.
func addSaturating(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// mulSaturating returns n times d, at most the longest duration there is. Neither is negative.
func mulSaturating(d time.Duration, n int) time.Duration {
	if n > 0 && d > math.MaxInt64/time.Duration(n) {
		return math.MaxInt64
	}
	return d * time.Duration(n)
}
