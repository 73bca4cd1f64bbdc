package headers

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A clock converts the times that one response states into delays.
type clock struct {
	header   http.Header
	sent     time.Time     // when the request was sent, by the local clock
	received time.Time     // when the response was received
	age      time.Duration // for which the response was in caches
	now      time.Time     // the server's clock; zero until it is needed
}

// serverTime returns the time at the server at which the response was received: its Date, which is in whole
// seconds, plus the age added by caches. Without a Date it is the local time, and also if the second of the Date is
// between the time at which the request was sent and that of receipt: then both clocks are right. The Date of Apache httpd
// is the time at which it received the request, that of most servers the time of the response.
func (c *clock) serverTime() time.Time {
	if c.now.IsZero() {
		c.now = c.received
		if at, ok := ParseDate(c.header["Date"], c.received); ok {
			if at = at.Add(c.age); c.received.Before(at) || c.sent.Sub(at) >= time.Second {
				c.now = at
			}
		}
	}
	return c.now
}

// delayUntil returns the time from receipt of the response until t.
func (c *clock) delayUntil(t timeValue) time.Duration {
	if t.format.IsDelta() {
		return t.delay
	}
	return timeUntil(t.at, c.serverTime())
}

// timeUntil returns the time from now until at, or 0 if at is in the past.
func timeUntil(at, now time.Time) time.Duration { return max(at.Sub(now), 0) }

// readRetryAfter reads the values of one header of the Retry-After family. The longest delay
// is used, and malformed values are ignored.
func (r *Report) readRetryAfter(values []string, scale time.Duration, c *clock) {
	for _, v := range values[:min(len(values), maxInstances)] {
		if len(v) > maxDateLen {
			continue
		}
		d, form, ok := c.parseRetryDelay(v, scale)
		if ok && (!r.HasRetryAfter || d > r.RetryAfter || d == r.RetryAfter && form < r.RetryFormat) {
			r.RetryAfter, r.HasRetryAfter, r.RetryFormat = d, true, form
		}
	}
}

// readRetryHeaders reads the headers of the Retry-After family. A delay in milliseconds that
// is not 0 takes precedence over Retry-After, which is the same delay in whole seconds.
func (p *parser) readRetryHeaders() {
	exact := len(p.retryHeaders) > 1 && slices.ContainsFunc(p.retryHeaders, p.isMilliseconds)
	for _, h := range p.retryHeaders {
		if !exact || !h.isRetryAfter {
			p.out.readRetryAfter(h.values, h.scale, &p.clock)
		}
	}
}

// isMilliseconds reports whether h is a delay in milliseconds that is not 0.
func (p *parser) isMilliseconds(h retryHeader) bool {
	if h.scale != time.Millisecond || len(h.values[0]) > maxDateLen {
		return false
	}
	d, _, ok := p.clock.parseRetryDelay(h.values[0], h.scale)
	return ok && d > 0
}

// parseRetryDelay parses one value of the Retry-After family. A negative number is malformed.
func (c *clock) parseRetryDelay(v string, scale time.Duration) (time.Duration, TimeFormat, bool) {
	v = trimBlanks(v)
	n, ok := parseDecimal(v)
	switch {
	case ok && n.negative:
		return 0, FormatNone, false
	case ok && n.isEpoch(c.received):
		return c.parseRetryEpoch(n, scale)
	case ok:
		d, format := n.delay(scale)
		return d, format, true
	}
	t, ok := parseTime(v, scale, c.received)
	if !ok {
		return parseRetryList(v, scale)
	}
	return c.delayUntil(t), t.format, true
}

// parseRetryList parses the delays of several servers in one value, such as "2, 5": the longest is used.
// Without the blank it may be a decimal comma.
func parseRetryList(v string, scale time.Duration) (longest time.Duration, format TimeFormat, ok bool) {
	for v != "" {
		var item string
		item, v, _ = strings.Cut(v, ", ")
		n, valid := parseDecimal(trimBlanks(item))
		if !valid || n.negative {
			return 0, FormatNone, false
		}
		d, f := n.delay(scale)
		longest, format, ok = max(longest, d), f, true
	}
	return longest, format, ok
}

// parseRetryEpoch reads a number that is too large for a delay. If it is the time since
// 1970 in seconds or milliseconds, sent by mistake, and close to the current time, it is
// that instant. Otherwise it is the long delay that it states.
func (c *clock) parseRetryEpoch(n decimal, scale time.Duration) (time.Duration, TimeFormat, bool) {
	now := c.serverTime()
	about := func(at time.Time) bool { d := at.Sub(now); return d > -10*365*day && d < 10*365*day }
	if at := time.Unix(n.whole, n.nanos); about(at) {
		return timeUntil(at, now), FormatEpochSeconds, true
	}
	if at := time.UnixMilli(n.whole); about(at) {
		return timeUntil(at, now), FormatEpochMillis, true
	}
	d, _ := n.delay(scale)
	return d, FormatDeltaSeconds, true
}

// fixRetryAfter detects a Retry-After in milliseconds: read as milliseconds it is close to
// the reset of the same response, and read as seconds it is a thousand times as long.
func (p *parser) fixRetryAfter() {
	if p.out.RetryFormat != FormatDeltaSeconds || p.out.RetryAfter < 1000*time.Second {
		return
	}
	for i := range p.limits {
		d := &p.limits[i]
		if !d.HasReset || d.ResetAfter == 0 {
			continue
		}
		if off := p.out.RetryAfter/1000 - d.ResetAfter; off.Abs() <= 2*time.Second {
			p.out.RetryAfter, p.out.RetryFormat = p.out.RetryAfter/1000, FormatDeltaMillis
			return
		}
	}
}

// isEpoch reports whether a number is so large that it is the time since 1970 and not a delay: from 1e9 seconds on,
// which is 2001, or less than a year from the clock. The clock of a testing/synctest bubble begins in 2000.
func (n decimal) isEpoch(received time.Time) bool {
	return n.whole >= 1e9 || n.whole >= 9e8 && time.Unix(n.whole, 0).Sub(received).Abs() < 365*day
}

// A timeValue is a time that a header states: a delay or an instant.
type timeValue struct {
	format TimeFormat
	delay  time.Duration // for relative formats
	at     time.Time     // for absolute formats
}

// parseTime parses a delay or an instant. The size of a bare number determines its meaning:
// from 1e9 on, see isEpoch, it is seconds since 1970, from 1e11 on milliseconds, from 1e14 on
// microseconds. scale is the unit of a bare number if the name of the header states it,
// otherwise 0. A negative number is an instant in the past, but -1 is ignored: some
// gateways send it for unknown values.
func parseTime(s string, scale time.Duration, received time.Time) (t timeValue, ok bool) {
	s = trimBlanks(s)
	n, ok := parseDecimal(s)
	switch {
	case ok && n.negative:
		return timeValue{format: FormatDeltaSeconds}, n.whole != 1
	case ok && n.whole >= 1e11 && n.whole < 1e14:
		return timeValue{format: FormatEpochMillis, at: time.UnixMilli(n.whole)}, true
	case ok && n.whole >= 1e14 && n.whole < 1e17:
		return timeValue{format: FormatEpochMicros, at: time.UnixMicro(n.whole)}, true
	case ok && scale == 0 && n.whole < 1e11 && n.isEpoch(received):
		return timeValue{format: FormatEpochSeconds, at: time.Unix(n.whole, n.nanos)}, true
	case ok:
		d, format := n.delay(scale)
		return timeValue{format: format, delay: d}, true
	}
	if d, ok := parseDuration(s); ok {
		return timeValue{format: FormatDuration, delay: d}, true
	}
	at, ok := parseDate(s, received)
	return timeValue{format: FormatDate, at: at}, ok
}

// duration returns n units of time, rounded up. It saturates at the maximum Duration.
func (n decimal) duration(unit time.Duration) time.Duration {
	u := int64(unit)
	part := u/1e9*n.nanos + (u%1e9*n.nanos+1e9-1)/1e9
	return time.Duration(ticks.Add(ticks.Mul(n.whole, u), part))
}

// delay returns n units of time and their format. A scale of 0 or less means seconds.
func (n decimal) delay(scale time.Duration) (time.Duration, TimeFormat) {
	switch {
	case scale <= 0 || scale == time.Second:
		return n.duration(time.Second), FormatDeltaSeconds
	case scale == time.Millisecond:
		return n.duration(scale), FormatDeltaMillis
	}
	return n.duration(scale), FormatDuration
}

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
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && d.isValid()) {
		return time.Time{}, false
	}
	return time.Unix(d.unix(), 0).UTC(), true
}

func twoDigits(s string) (n int, ok bool) {
	return int(s[0]-'0')*10 + int(s[1]-'0'), isDigit(s[0]) && isDigit(s[1])
}

// month returns the number of a month, from 0, by its first three letters, or -1.
func month(s string) int {
	switch uint32(s[0]|0x20)<<16 | uint32(s[1]|0x20)<<8 | uint32(s[2]|0x20) {
	case 'j'<<16 | 'a'<<8 | 'n':
		return 0
	case 'f'<<16 | 'e'<<8 | 'b':
		return 1
	case 'm'<<16 | 'a'<<8 | 'r':
		return 2
	case 'a'<<16 | 'p'<<8 | 'r':
		return 3
	case 'm'<<16 | 'a'<<8 | 'y':
		return 4
	case 'j'<<16 | 'u'<<8 | 'n':
		return 5
	case 'j'<<16 | 'u'<<8 | 'l':
		return 6
	case 'a'<<16 | 'u'<<8 | 'g':
		return 7
	case 's'<<16 | 'e'<<8 | 'p':
		return 8
	case 'o'<<16 | 'c'<<8 | 't':
		return 9
	case 'n'<<16 | 'o'<<8 | 'v':
		return 10
	case 'd'<<16 | 'e'<<8 | 'c':
		return 11
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
	hasClock           bool
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
		return equalFold(w, "UT") || equalFold(w, "Z")
	}
	if equalFold(w, "GMT") || equalFold(w, "UTC") {
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
	d.offset = sign * (n*60 + minutes) * 60
	return n < 24 && minutes < 60
}

func (d *dateParser) time(received time.Time) (time.Time, bool) {
	if d.twoDigits {
		d.year = century(d.year, received)
	}
	if !d.isValid() {
		return time.Time{}, false
	}
	return time.Unix(d.unix()-int64(d.offset), int64(d.nanos)).UTC(), true
}

// isValid reports whether no part is missing or out of its range.
func (d *dateParser) isValid() bool {
	return d.hasYear && d.hasClock && 0 <= d.month && d.month <= 11 && 1 <= d.day && d.day <= 31 &&
		d.hour <= 24 && d.minute <= 59 && d.sec <= 60
}

// unix returns the seconds from 1970 to the date and time of d in UTC. A day after the end of
// the month is one of the next month, as for time.Date.
func (d *dateParser) unix() int64 {
	const daysTo1970 = 719469 + 146097                 // from the day before March 1st, -400
	year, month := int64(d.year)+400, int64(d.month)-2 // from March 1st, -400 on: the leap day is the last of its year
	if month < 0 {
		year, month = year-1, month+12
	}
	day := year*365 + year/4 - year/100 + year/400 + (153*month+2)/5 + int64(d.day) - daysTo1970
	return day*86400 + int64(d.hour)*3600 + int64(d.minute)*60 + int64(d.sec)
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

// parseDuration parses one or more numbers with units: 6ms, 1m6.779s, "10 seconds", 1d12h, 00:01:30.
// Fractions of a nanosecond are rounded up.
func parseDuration(s string) (time.Duration, bool) {
	if len(s) > maxDateLen {
		return 0, false
	}
	d, rest, ok := leadingDuration(s)
	return d, ok && rest == ""
}

// leadingDuration parses the duration at the beginning of s, such as "4 seconds.", "1m30s" or "22:56:30.", and
// returns the rest.
func leadingDuration(s string) (total time.Duration, rest string, ok bool) {
	s = trimBlanks(s)
	if d, rest, ok := leadingClock(s); ok {
		return d, rest, true
	}
	for {
		digits := countPrefix(s, func(c byte) bool { return isDigit(c) || c == '.' })
		n, valid := parseDecimal(s[:digits])
		word := trimBlanks(s[digits:])
		letters := countPrefix(word, func(c byte) bool { return c >= 0x80 }) // of µs
		letters += countPrefix(word[letters:], isLetter)
		unit := unitOfTime(word[:letters])
		if !valid || unit == 0 {
			return total, s, ok
		}
		total, ok = time.Duration(ticks.Add(int64(total), int64(n.duration(unit)))), true
		s = trimBlanks(word[letters:])
	}
}

// leadingClock parses hours, minutes and seconds at the beginning of s, "22:56:30", which may follow days,
// "5.03:23:11", and returns the rest.
func leadingClock(s string) (d time.Duration, rest string, ok bool) {
	clock := strings.TrimRight(s[:countPrefix(s, func(c byte) bool { return isDigit(c) || c == '.' || c == ':' })], ".")
	days, hours, hasDays := strings.Cut(clock, ".")
	if !hasDays {
		days, hours = "0", clock
	}
	n, valid := parseDecimal(days)
	d, ok = clockDuration(hours)
	return time.Duration(ticks.Add(int64(n.duration(day)), int64(d))), s[len(clock):], ok && valid
}

// nextMidnight returns the first midnight after now in UTC.
func nextMidnight(now time.Time) time.Time { return now.Truncate(day).Add(day) }

// nextPacificMidnight returns the first midnight after now in Los Angeles. It does not need the database of
// time zones, which some systems do not have.
func nextPacificMidnight(now time.Time) time.Time {
	y, m, d := now.UTC().Add(pacificOffset(now)).Date()
	midnight := time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
	return midnight.Add(-pacificOffset(midnight.Add(8 * time.Hour))) // the offset changes at 2 o'clock
}

// pacificOffset returns the offset from UTC in Los Angeles: -7 hours from the second Sunday of March to the
// first of November, 2 o'clock local time, otherwise -8 hours.
func pacificOffset(at time.Time) time.Duration {
	year := at.UTC().Year()
	sunday := func(m time.Month, n int) time.Time {
		first := time.Date(year, m, 1, 0, 0, 0, 0, time.UTC)
		return first.AddDate(0, 0, (7-int(first.Weekday()))%7+7*(n-1))
	}
	if !at.Before(sunday(time.March, 2).Add(10*time.Hour)) && at.Before(sunday(time.November, 1).Add(9*time.Hour)) {
		return -7 * time.Hour
	}
	return -8 * time.Hour
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
