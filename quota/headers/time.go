package headers

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// Dates are accepted in the three formats of RFC 9110, in RFC 3339 with any fraction and
// offset, and in the default formats of JavaScript, Ruby and Go. One parser accepts all of
// them. It classifies each token by its form, and ignores the weekday, which some servers
// state incorrectly.

// ParseDate returns the time in a Date header, given as the values of that header. received
// is the local time of receipt. It returns false if there is no valid date.
func ParseDate(values []string, received time.Time) (time.Time, bool) {
	for _, v := range values {
		if at, ok := parseDate(v, received); ok {
			return at, true
		}
	}
	return time.Time{}, false
}

// parseAge returns the time for which a response has been in caches. It returns 0 for a
// response that was not cached.
func parseAge(v string) time.Duration {
	if n, ok := parseDecimal(trimBlanks(v)); ok && !n.negative {
		return n.duration(time.Second)
	}
	return 0
}

// parseDate parses a date. A date without a zone is in UTC. received determines the century
// of a year with two digits.
func parseDate(s string, received time.Time) (time.Time, bool) {
	if t, ok := parseHTTPDate(s); ok {
		return t, true
	}
	if len(s) > maxDateLen {
		return time.Time{}, false
	}
	d := dateParser{s: s, month: -1}
	if !d.read() {
		return time.Time{}, false
	}
	return d.time(received)
}

const maxDateLen = 96 // bytes; the longest format in use is JavaScript's, with about 70

// parseHTTPDate parses the usual format of Date in a quarter of the time that the general
// parser takes: Tue, 14 Sep 2021 20:43:15 GMT.
func parseHTTPDate(s string) (time.Time, bool) {
	if len(s) != 29 || s[3:5] != ", " || s[7] != ' ' || s[11] != ' ' || s[16] != ' ' || s[19] != ':' || s[22] != ':' || s[25:] != " GMT" {
		return time.Time{}, false
	}
	century, ok1 := twoDigits(s[12:])
	year, ok2 := twoDigits(s[14:])
	d := dateParser{month: month(s[8:11]), year: century*100 + year, hasYear: true, hasClock: true}
	var ok3, ok4, ok5, ok6 bool
	d.day, ok3 = twoDigits(s[5:])
	d.hour, ok4 = twoDigits(s[17:])
	d.minute, ok5 = twoDigits(s[20:])
	d.sec, ok6 = twoDigits(s[23:])
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6) {
		return time.Time{}, false
	}
	return d.time(time.Time{})
}

func twoDigits(s string) (n int, ok bool) {
	return int(s[0]-'0')*10 + int(s[1]-'0'), isDigit(s[0]) && isDigit(s[1])
}

// month returns the number of a month, from 0, by its first three letters, or -1.
func month(s string) int {
	const names = "janfebmaraprmayjunjulaugsepoctnovdec"
	for i := 0; i < len(names); i += 3 {
		if s[0]|0x20 == names[i] && s[1]|0x20 == names[i+1] && s[2]|0x20 == names[i+2] {
			return i / 3
		}
	}
	return -1
}

// A dateParser collects the parts of a date. -1 or false means that a part is missing.
type dateParser struct {
	s   string
	pos int

	year, month, day   int
	twoDigits, hasYear bool
	hour, minute, sec  int
	nanos, offset      int
	hasClock, hasZone  bool
}

func (d *dateParser) read() bool {
	for d.pos < len(d.s) {
		c := d.s[d.pos]
		switch {
		case c == ' ' || c == ',':
			d.pos++
		case c == '(': // the name of a zone in parentheses: the rest contains no further part
			return true
		case isDigit(c):
			if !d.digits() {
				return false
			}
		case isLetter(c):
			if !d.word() {
				return false
			}
		case (c == '+' || c == '-') && d.hasClock:
			if !d.zone() {
				return false
			}
		case c == '-': // 06-Nov-94
			d.pos++
		default:
			return false
		}
	}
	return true
}

// digits parses a day, a year, a time of day, or a date in ISO order.
func (d *dateParser) digits() bool {
	n, width := d.int()
	switch next := d.peek(); {
	case next == ':' && !d.hasClock:
		return d.clock(n)
	case width == 4 && next == '-' && !d.hasYear && d.month < 0:
		return d.iso(n)
	case width <= 2 && d.day == 0:
		d.day = n
		return true
	case (width == 4 || width == 2) && !d.hasYear:
		d.year, d.hasYear, d.twoDigits = n, true, width == 2
		return true
	}
	return false
}

func (d *dateParser) iso(year int) bool {
	d.year, d.hasYear = year, true
	d.pos++
	d.month, _ = d.int()
	d.month--
	if d.peek() != '-' {
		return false
	}
	d.pos++
	d.day, _ = d.int()
	if c := d.peek(); c == 'T' || c == 't' {
		d.pos++
		return isDigit(d.peek())
	}
	return true
}

// clock parses what follows the hour: minutes, then seconds and a fraction if present.
func (d *dateParser) clock(hour int) bool {
	d.hour, d.hasClock = hour, true
	d.pos++
	var width int
	if d.minute, width = d.int(); width != 2 {
		return false
	}
	if d.peek() != ':' {
		return true
	}
	d.pos++
	if d.sec, width = d.int(); width != 2 {
		return false
	}
	if c := d.peek(); c == '.' {
		d.pos++
		return d.fraction()
	}
	return true
}

func (d *dateParser) fraction() bool {
	start, unit := d.pos, 100_000_000
	for ; isDigit(d.peek()); d.pos++ {
		d.nanos += int(d.s[d.pos]-'0') * unit
		unit /= 10
	}
	return d.pos > start
}

// word parses a month, a weekday or the name of a zone.
func (d *dateParser) word() bool {
	start := d.pos
	for isLetter(d.peek()) {
		d.pos++
	}
	w := d.s[start:d.pos]
	if len(w) < 3 {
		d.hasZone = equalFold(w, "UT") || equalFold(w, "Z")
		return d.hasZone
	}
	if equalFold(w, "GMT") || equalFold(w, "UTC") {
		d.hasZone = true
		return true
	}
	if m := month(w); m >= 0 {
		d.month = m
		return true
	}
	for i := range 7 {
		if equalFold(w[:3], "SunMonTueWedThuFriSat"[3*i:3*i+3]) {
			return true
		}
	}
	return false
}

// zone parses an offset: +01:00, +0100 or +01.
func (d *dateParser) zone() bool {
	sign := 1
	if d.s[d.pos] == '-' {
		sign = -1
	}
	d.pos++
	n, width := d.int()
	minutes := 0
	switch {
	case width == 4:
		n, minutes = n/100, n%100
	case width == 2 && d.peek() == ':':
		d.pos++
		if minutes, width = d.int(); width != 2 {
			return false
		}
	case width != 2:
		return false
	}
	d.offset, d.hasZone = sign*(n*60+minutes)*60, true
	return n < 24 && minutes < 60
}

func (d *dateParser) time(received time.Time) (time.Time, bool) {
	if d.twoDigits {
		d.year = century(d.year, received)
	}
	switch {
	case !d.hasYear, !d.hasClock, d.month < 0 || d.month > 11, d.day < 1 || d.day > 31,
		d.hour > 24, d.minute > 59, d.sec > 60:
		return time.Time{}, false
	}
	t := time.Date(d.year, time.Month(d.month+1), d.day, d.hour, d.minute, d.sec, d.nanos, time.UTC)
	return t.Add(-time.Duration(d.offset) * time.Second), true
}

// century completes a year with two digits: a year more than 50 years in the future is in
// the past (RFC 9110, section 5.6.7).
func century(year int, received time.Time) int {
	now := received.Year()
	year += now - now%100
	if year > now+50 {
		year -= 100
	}
	return year
}

// int parses digits and returns their number. More than nine digits are not valid.
func (d *dateParser) int() (n, width int) {
	start := d.pos
	for isDigit(d.peek()) && d.pos-start < 10 {
		n = n*10 + int(d.s[d.pos]-'0')
		d.pos++
	}
	return n, d.pos - start
}

func (d *dateParser) peek() byte {
	if d.pos < len(d.s) {
		return d.s[d.pos]
	}
	return 0
}

// timeUntil returns the time from now until at, or 0 if at is in the past.
func timeUntil(at, now time.Time) time.Duration { return max(at.Sub(now), 0) }

// parseDuration parses one or more numbers with units: 6ms, 1m6.779s, "10 seconds", 1d12h.
// Fractions of a nanosecond are rounded up.
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
		total = time.Duration(ticks.Add(int64(total), int64(n.duration(unit))))
	}
}

// clockDuration parses hours, minutes and seconds: 00:01:30.
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
