package clients

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/throttle"
)

// ParseLimit parses a limit of a command line, and reduces it by margin (0.02 means two
// percent). The empty string means no limit.
//
//	20/s,burst=20              a token bucket
//	window=100/5s,from=first   100 in each 5 s counted from the first request
//	window=100/1m              100 in each minute of the clock
func ParseLimit(s string, margin float64) (throttle.Limiter, error) {
	if s == "" {
		return nil, nil
	}
	rate, rest, _ := strings.Cut(s, ",")
	rate, window := strings.CutPrefix(rate, "window=")
	count, per, err := parseRate(rate)
	if err != nil {
		return nil, err
	}
	if window {
		return fixedWindow(count, per, rest, margin)
	}
	return tokenBucket(count, per, rest, margin)
}

func parseRate(s string) (count int64, per time.Duration, err error) {
	n, unit, ok := strings.Cut(s, "/")
	if count, err = strconv.ParseInt(n, 10, 64); !ok || err != nil || count <= 0 {
		return 0, 0, fmt.Errorf("limit %q: say how many per how long, such as 20/s or 100/5s", s)
	}
	if unit != "" && (unit[0] < '0' || unit[0] > '9') {
		unit = "1" + unit
	}
	if per, err = time.ParseDuration(unit); err != nil || per <= 0 {
		return 0, 0, fmt.Errorf("limit %q: %q is no time: take s, m, h or a number of them", s, unit)
	}
	return count, per, nil
}

// tokenBucket applies the margin to the rate: each unit takes longer.
func tokenBucket(count int64, per time.Duration, rest string, margin float64) (throttle.Limiter, error) {
	l := throttle.Limit{Count: count, Per: per + time.Duration(margin*float64(per)), Burst: 1}
	if rest != "" {
		n, ok := strings.CutPrefix(rest, "burst=")
		burst, err := strconv.ParseInt(n, 10, 64)
		if !ok || err != nil || burst <= 0 {
			return nil, fmt.Errorf("limit: %q is not understood: say burst=20", rest)
		}
		l.Burst = burst
	}
	if err := l.Validate(); err != nil {
		return nil, err
	}
	return throttle.NewTokenBucket(l), nil
}

// fixedWindow applies the margin to the length of the window.
func fixedWindow(count int64, per time.Duration, rest string, margin float64) (throttle.Limiter, error) {
	q := throttle.FixedWindowConfig{Count: count, Per: per + time.Duration(margin*float64(per)), Align: throttle.AtEpoch}
	switch rest {
	case "", "from=epoch":
	case "from=first":
		q.Align = throttle.AtFirst
	default:
		return nil, fmt.Errorf("limit: %q is not understood: say from=first or from=epoch", rest)
	}
	if err := q.Validate(); err != nil {
		return nil, err
	}
	return throttle.NewFixedWindow(q), nil
}
