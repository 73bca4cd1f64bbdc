package quota

import (
	"math"
	"math/bits"
	"strings"
	"time"
)

// A number is a decimal as it stands in a header, saturating: its whole part and
// the billionths behind the point, rounded up.
type number struct {
	whole    int64
	nanos    int64
	negative bool
}

// parseNumber reads a decimal, and nothing but a decimal: "1000abc", "0x10" and
// "1e3" are not numbers here, since no server means what a prefix of them says.
func parseNumber(s string) (n number, ok bool) {
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
			i += prefix(s[i:], isDigit)
			break
		}
	}
	if i == 0 || i > maxDigits {
		return number{}, false
	}
	if i == len(s) {
		return n, true
	}
	if s[i] != '.' || i+1 == len(s) {
		return number{}, false
	}
	return n, n.fraction(s[i+1:])
}

// maxDigits bounds what is read as a number at all.
const maxDigits = 64

func (n *number) fraction(s string) bool {
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

// times returns n units of time, rounded up, at most the longest duration.
func (n number) times(unit time.Duration) time.Duration {
	hi, lo := bits.Mul64(uint64(n.whole), uint64(unit))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	u := int64(unit)
	part := u/1e9*n.nanos + (u%1e9*n.nanos+1e9-1)/1e9
	return add(time.Duration(lo), time.Duration(part))
}

func (n number) float() float64 { return float64(n.whole) + float64(n.nanos)/1e9 }

// An instant is a time as a header tells it: a delay, or a moment.
type instant struct {
	form  Form
	delay time.Duration // of relative forms
	at    time.Time     // of absolute forms
}

// parseInstant reads a delay or a moment. What a bare number is shows in its
// size: from 1e9 on it is seconds since 1970, from 1e11 on milliseconds, from 1e14
// on microseconds. scale is the unit of a bare number if the name says it, 0 if not.
// A negative number is a moment that is past, but -1 says nothing: some gateways send
// it for what they do not know.
func parseInstant(s string, scale time.Duration, received time.Time) (t instant, ok bool) {
	s = trim(s)
	n, ok := parseNumber(s)
	switch {
	case ok && n.negative:
		return instant{form: DeltaSeconds}, n.whole != 1
	case ok && n.whole >= 1e11 && n.whole < 1e14:
		return instant{form: EpochMillis, at: time.UnixMilli(n.whole)}, true
	case ok && n.whole >= 1e14 && n.whole < 1e17:
		return instant{form: EpochMicros, at: time.UnixMicro(n.whole)}, true
	case ok && n.whole >= 1e9 && n.whole < 1e11 && scale == 0:
		return instant{form: EpochSeconds, at: time.Unix(n.whole, n.nanos)}, true
	case ok && scale == time.Millisecond:
		return instant{form: DeltaMillis, delay: n.times(scale)}, true
	case ok:
		return instant{form: DeltaSeconds, delay: n.times(time.Second)}, true
	}
	if d, ok := parseDuration(s); ok {
		return instant{form: Duration, delay: d}, true
	}
	at, ok := parseDate(s, received)
	return instant{form: Date, at: at}, ok
}

// An entry is one member of a value that holds several: "100;w=60", "100:120",
// "32/40", "DeleteVM3Min;237".
type entry struct {
	name   string
	n      number
	has    bool   // n was there
	second number // behind a slash
	pair   bool   // second was there
	window time.Duration
}

// maxEntries is how many members of one value are read.
const maxEntries = 16

// splitEntries reads a list of entries. It returns false if any of them makes
// no sense, since then the others may not either. Three numbers or more between
// slashes are a list, too.
func splitEntries(s string, out *[maxEntries]entry) (n int, ok bool) {
	sep := byte(',')
	if strings.Count(s, "/") >= 2 && prefix(s, func(c byte) bool { return isDigit(c) || c == '/' }) == len(s) {
		sep = '/'
	}
	for s != "" && n < len(out) {
		var item string
		item, s = cutOutsideQuotes(s, sep)
		if item = trim(item); item == "" {
			continue
		}
		if !out[n].read(item) {
			return 0, false
		}
		n++
	}
	return n, n > 0
}

func (e *entry) read(s string) bool {
	*e = entry{}
	head, params := cutOutsideQuotes(s, ';')
	head = trim(head)
	if !e.readHead(head) {
		*e = entry{name: head}
	}
	for params != "" {
		var p string
		p, params = cutOutsideQuotes(params, ';')
		e.readParam(trim(p))
	}
	return e.has
}

// readHead reads "100", "100:60", "32/40", "100/hour", "100 per minute" and
// "QueriesPerHour:3".
func (e *entry) readHead(s string) (ok bool) {
	digits := prefix(s, func(c byte) bool { return isDigit(c) || c == '.' || c == '-' || c == '+' })
	rest := trim(s[digits:])
	if e.n, ok = parseNumber(s[:digits]); !ok {
		return e.readNamed(s)
	}
	switch e.has = true; {
	case rest == "":
		return true
	case rest[0] == ':':
		e.second, ok = parseNumber(trim(rest[1:]))
		e.window = e.second.times(time.Second)
		return ok
	case rest[0] == '/':
		if e.second, e.pair = parseNumber(trim(rest[1:])); e.pair {
			return true
		}
		e.window, ok = perTime(trim(rest[1:]))
		return ok
	}
	_, rest, _ = strings.Cut(rest, "per ")
	e.window, ok = perTime(rest)
	return ok
}

// readNamed reads what is left under a name: "QueriesPerHour:3".
func (e *entry) readNamed(s string) (ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || !isLetter(s[0]) {
		return false
	}
	e.n, ok = parseNumber(s[i+1:])
	e.name, e.has = s[:i], ok
	return ok
}

// perTime reads a length of time behind "per": "minute" is one of them.
func perTime(s string) (time.Duration, bool) {
	if unit := unitOfTime(s); unit > 0 {
		return unit, true
	}
	return parseDuration(s)
}

func (e *entry) readParam(s string) {
	key, value, isPair := strings.Cut(s, "=")
	n, ok := parseNumber(trim(value))
	switch key = trim(key); {
	case !isPair:
		if n, ok := parseNumber(key); ok && !e.has { // DeleteVM3Min;237
			e.n, e.has = n, true
			e.window = windowIn(e.name)
		}
	case (key == "w" || key == "window") && ok:
		e.window = n.times(time.Second)
	case key == "name":
		e.name = strings.Trim(trim(value), `"`)
	}
}

// windowIn returns the window at the end of a bucket's name, as DeleteVM30Min has it.
func windowIn(name string) time.Duration {
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
	n, _ := parseNumber(name[digits:letters])
	return n.times(unitOfTime(name[letters:]))
}
