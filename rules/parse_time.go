package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const day = 24 * time.Hour

// units are the window lengths of envoyproxy/ratelimit, where a month has 30 days and a year 365.
// The word calendar selects calendar months.
var units = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": day,
	"week": 7 * day, "month": 30 * day, "year": 365 * day,
}

// unit returns a reader that stores the length of a named unit in to. Case does not matter.
func (r *reader) unit(to *time.Duration) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, "unit")
		if !ok {
			return
		}
		if *to = units[strings.ToLower(text)]; *to == 0 {
			r.fail(n, "unit is %q: write second, minute, hour, day, week, month or year; for other times write per", truncate(text))
		}
	}
}

// duration returns a reader that stores a duration in to, such as 1.5s, 90m, 2h30m, 7d or 2w.
func (r *reader) duration(what string, to *time.Duration) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, what)
		if !ok {
			return
		}
		d, err := parseDuration(text)
		if err != nil || d <= 0 {
			r.fail(n, "%s is %q: write a time such as 500ms, 90s, 1h30m, 7d or 2w", what, truncate(text))
			return
		}
		*to = d
	}
}

func parseDuration(text string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": day, "w": 7 * day} {
		if digits, ok := strings.CutSuffix(text, suffix); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil || n < 0 || n > math.MaxInt64/int64(unit) {
				return 0, fmt.Errorf("rules: %q is no number of days or weeks", text)
			}
			return time.Duration(n) * unit, nil
		}
	}
	return time.ParseDuration(text)
}

// formatDuration returns d in a form that parseDuration accepts, without trailing zero units.
func formatDuration(d time.Duration) string {
	if d >= day && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// clockTime returns a reader that stores a time of day in to, such as 09:00, 17:30:15 or 24:00.
func (r *reader) clockTime(what string, to *time.Duration) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, what)
		if !ok {
			return
		}
		d, ok := parseClock(text)
		if !ok {
			r.fail(n, "%s is %q: write a time of day such as 09:00 or 24:00", what, truncate(text))
			return
		}
		*to = d
	}
}

func parseClock(text string) (time.Duration, bool) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 {
		return 0, false
	}
	var d time.Duration
	for i, unit := range []time.Duration{time.Hour, time.Minute, time.Second}[:len(parts)] {
		n, err := strconv.ParseUint(parts[i], 10, 8)
		if err != nil || len(parts[i]) > 2 || i > 0 && n > 59 {
			return 0, false
		}
		d += time.Duration(n) * unit
	}
	return d, d <= day
}

func formatClock(d time.Duration) string {
	s := fmt.Sprintf("%02d:%02d", d/time.Hour, d/time.Minute%60)
	if d%time.Minute != 0 {
		s += fmt.Sprintf(":%02d", d/time.Second%60)
	}
	return s
}

var dayNames = [7]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// days returns a reader that stores days of the week in to: mon, mon-fri, or a list of such texts.
func (r *reader) days(to *Weekdays) func(*yaml.Node) {
	return func(n *yaml.Node) {
		*to = 0
		r.listOrOne(n, func(n *yaml.Node) {
			text, ok := r.scalar(n, "days")
			if !ok {
				return
			}
			w := parseDays(text)
			if w == 0 {
				r.fail(n, "days are %q: write mon, tue and so on, a range such as mon-fri, or a list of them", truncate(text))
			}
			*to |= w
		})
	}
}

// parseDays returns the days that text names. It returns 0 if text is invalid.
func parseDays(text string) (w Weekdays) {
	first, last, isRange := strings.Cut(strings.ToLower(text), "-")
	from, ok := parseDay(first)
	to := from
	if isRange && ok {
		to, ok = parseDay(last)
	}
	if !ok {
		return 0
	}
	for d := from; ; d = (d + 1) % 7 {
		w |= 1 << d
		if d == to {
			return w
		}
	}
}

func parseDay(text string) (int, bool) {
	text = strings.TrimSpace(text)
	for d := range dayNames {
		if text == dayNames[d] || text == strings.ToLower(time.Weekday(d).String()) {
			return d, true
		}
	}
	return 0, false
}

// String returns the days in the format of a file, starting with Monday.
func (w Weekdays) String() string {
	if w == EveryDay {
		return "every day"
	}
	var all []string
	for i := range 7 {
		if d := (i + 1) % 7; w.Has(time.Weekday(d)) {
			all = append(all, dayNames[d])
		}
	}
	return strings.Join(all, ",")
}

// zone returns a reader that stores a time zone in to.
func (r *reader) zone(to **time.Location) func(*yaml.Node) {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, "zone")
		if !ok {
			return
		}
		z, err := time.LoadLocation(text)
		if err != nil || text == "" {
			r.fail(n, "zone %q is not known: write a name such as Europe/Berlin or UTC; if it should be known, import time/tzdata", truncate(text))
			return
		}
		*to = z
	}
}
