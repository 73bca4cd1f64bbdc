package headers

import (
	"encoding/base64"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/sfv"
	"github.com/heed-go/heed/internal/ticks"
)

// A decimal is a decimal number of a header: its whole part, and its fraction in
// billionths, rounded up. Larger numbers saturate.
type decimal struct {
	whole    int64
	nanos    int64
	negative bool
}

// parseDecimal parses a decimal number. Texts that only begin with a number, such as
// "1000abc", and the forms "0x10" and "1e3" are not valid.
func parseDecimal(s string) (n decimal, ok bool) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		n.negative = s[0] == '-'
		s = s[1:]
	}
	i := 0
	for ; i < len(s) && isDigit(s[i]); i++ {
		hi, lo := bits.Mul64(uint64(n.whole), 10)
		lo += uint64(s[i] - '0')
		if n.whole = int64(lo); hi != 0 || lo > math.MaxInt64 {
			n.whole = math.MaxInt64
			i += countPrefix(s[i:], isDigit)
			break
		}
	}
	if i == 0 || i > maxDigits {
		return decimal{}, false
	}
	if i == len(s) {
		return n, true
	}
	if s[i] != '.' || i+1 == len(s) {
		return decimal{}, false
	}
	return n, n.fraction(s[i+1:])
}

// maxDigits is the maximum length of a text that is parsed as a number.
const maxDigits = 64

func (n *decimal) fraction(s string) bool {
	unit, more := int64(1e8), false
	for i := range len(s) {
		if !isDigit(s[i]) || i > maxDigits {
			return false
		}
		n.nanos += int64(s[i]-'0') * unit
		more = more || unit == 0 && s[i] != '0'
		unit /= 10
	}
	if more {
		n.nanos++
	}
	if n.nanos >= 1e9 && n.whole < math.MaxInt64 {
		n.whole, n.nanos = n.whole+1, 0
	}
	return true
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

func (n decimal) float() float64 { return float64(n.whole) + float64(n.nanos)/1e9 }

// A timeValue is a time that a header states: a delay or an instant.
type timeValue struct {
	format TimeFormat
	delay  time.Duration // for relative formats
	at     time.Time     // for absolute formats
}

// parseTime parses a delay or an instant. The size of a bare number determines its meaning:
// from 1e9 on it is seconds since 1970, from 1e11 on milliseconds, from 1e14 on
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
	case ok && n.whole >= 1e9 && n.whole < 1e11 && scale == 0:
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

// A listEntry is one entry of a value with several entries, such as "100;w=60", "100:120",
// "32/40" or "DeleteVM3Min;237".
type listEntry struct {
	name      string
	n         decimal
	hasN      bool    // n is present
	second    decimal // the number after a slash
	hasSecond bool    // second is present
	window    time.Duration
}

// maxEntries is the maximum number of entries of one value.
const maxEntries = 16

// parseEntries parses a list of entries. It returns false if any of them is malformed,
// because the others are then not reliable. Three or more numbers separated by slashes are
// a list as well.
func parseEntries(s string, out *[maxEntries]listEntry) (n int, ok bool) {
	sep := byte(',')
	if strings.Count(s, "/") >= 2 && countPrefix(s, func(c byte) bool { return isDigit(c) || c == '/' }) == len(s) {
		sep = '/'
	}
	for s != "" && n < len(out) {
		var item string
		item, s = cutOutsideQuotes(s, sep)
		if item = trimBlanks(item); item == "" {
			continue
		}
		if !out[n].parse(item) {
			return 0, false
		}
		n++
	}
	return n, n > 0
}

func (e *listEntry) parse(s string) bool {
	*e = listEntry{}
	head, params := cutOutsideQuotes(s, ';')
	head = trimBlanks(head)
	if !e.parseHead(head) {
		*e = listEntry{name: head}
	}
	for params != "" {
		var p string
		p, params = cutOutsideQuotes(params, ';')
		e.parseParam(trimBlanks(p))
	}
	return e.hasN
}

// parseHead parses the part before the parameters: "100", "100:60", "32/40", "100/hour",
// "100 per minute" or "QueriesPerHour:3".
func (e *listEntry) parseHead(s string) (ok bool) {
	digits := countPrefix(s, func(c byte) bool { return isDigit(c) || c == '.' || c == '-' || c == '+' })
	rest := trimBlanks(s[digits:])
	if e.n, ok = parseDecimal(s[:digits]); !ok {
		return e.parseNamed(s)
	}
	switch e.hasN = true; {
	case rest == "":
		return true
	case rest[0] == ':':
		e.second, ok = parseDecimal(trimBlanks(rest[1:]))
		e.window = e.second.duration(time.Second)
		return ok
	case rest[0] == '/':
		if e.second, e.hasSecond = parseDecimal(trimBlanks(rest[1:])); e.hasSecond {
			return true
		}
		e.window, ok = parsePeriod(trimBlanks(rest[1:]))
		return ok
	}
	_, rest, _ = strings.Cut(rest, "per ")
	e.window, ok = parsePeriod(rest)
	return ok
}

// parseNamed parses the count after a name: "QueriesPerHour:3".
func (e *listEntry) parseNamed(s string) (ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || !isLetter(s[0]) {
		return false
	}
	e.n, ok = parseDecimal(s[i+1:])
	e.name, e.hasN = s[:i], ok
	return ok
}

// parsePeriod parses the duration after "per", such as "minute".
func parsePeriod(s string) (time.Duration, bool) {
	if unit := unitOfTime(s); unit > 0 {
		return unit, true
	}
	return parseDuration(s)
}

func (e *listEntry) parseParam(s string) {
	key, value, isPair := strings.Cut(s, "=")
	n, ok := parseDecimal(trimBlanks(value))
	switch key = trimBlanks(key); {
	case !isPair:
		if n, ok := parseDecimal(key); ok && !e.hasN { // DeleteVM3Min;237
			e.n, e.hasN = n, true
			e.window = windowSuffix(e.name)
		}
	case (key == "w" || key == "window") && ok:
		e.window = n.duration(time.Second)
	case key == "name":
		e.name = strings.Trim(trimBlanks(value), `"`)
	}
}

// windowSuffix returns the window at the end of the name of a bucket, such as
// DeleteVM30Min.
func windowSuffix(name string) time.Duration {
	letters := len(name)
	for letters > 0 && isLetter(name[letters-1]) {
		letters--
	}
	digits := letters
	for digits > 0 && letters-digits < 4 && isDigit(name[digits-1]) {
		digits--
	}
	if digits == letters {
		return 0
	}
	n, _ := parseDecimal(name[digits:letters])
	return n.duration(unitOfTime(name[letters:]))
}

// intParam returns the value of the parameter key of it. ok is false if there is no such
// parameter. valid is false if it is not an integer, or is negative.
func intParam(it *sfv.Item, key string) (n decimal, ok, valid bool) {
	v, ok := it.Param(key)
	if !ok {
		return decimal{}, false, true
	}
	n, ok = intValue(v)
	return n, ok, ok
}

// intValue returns v if it is a non-negative integer.
func intValue(v sfv.Value) (decimal, bool) {
	if v.Kind != sfv.Number || strings.IndexByte(v.Text, '.') >= 0 {
		return decimal{}, false
	}
	n, ok := parseDecimal(v.Text)
	return n, ok && !n.negative
}

// partitionKey returns the partition key of it, or "" if there is none. A value that is not
// a byte sequence, as the draft requires, is used unchanged. resolve limits its length.
func partitionKey(it *sfv.Item) string {
	v, ok := it.Param("pk")
	if !ok || v.Kind == sfv.Bool {
		return ""
	}
	if v.Kind == sfv.Bytes {
		if b, err := base64.StdEncoding.DecodeString(v.Text); err == nil {
			return string(b)
		}
	}
	return v.String()
}

// Header names and values are ASCII. The following functions process them without copies.

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// countPrefix returns the number of bytes at the start of s for which ok returns true.
func countPrefix(s string, ok func(byte) bool) int {
	n := 0
	for n < len(s) && ok(s[n]) {
		n++
	}
	return n
}

// trimBlanks removes spaces and tabs from both ends of s.
func trimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// toLower copies s into buf in lower case, up to the length of buf.
func toLower(buf []byte, s string) []byte {
	n := min(len(s), len(buf))
	for i := range n {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[i] = c
	}
	return buf[:n]
}

// equalFold reports whether a and b are equal, ignoring case.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		x, y := a[i], b[i]
		if x != y && (x|0x20 != y|0x20 || !isLetter(x)) {
			return false
		}
	}
	return true
}

// cutOutsideQuotes cuts s at the first sep that is not inside a quoted string.
func cutOutsideQuotes(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// smallInt parses a small integer. It returns 0 if s is not one.
func smallInt(s []byte) (n int) {
	for _, c := range s {
		if !isDigit(c) {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// hashWord adds a word to an FNV-1a hash of words. The hash of no words is 0.
func hashWord(h uint64, word []byte) uint64 {
	if h == 0 {
		h = 14695981039346656037
	}
	for _, c := range word {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return (h ^ '-') * 1099511628211
}
