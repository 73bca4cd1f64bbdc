package headers

import (
	"strings"
	"sync"
	"time"
)

// Header names consist of few words, in any order and sometimes without separators. This
// file is the dictionary; the grammar is in name.go.

// isTime reports whether values of kind f are times, so that a unit of time in the name is
// the unit of the value and not the window of the limit.
func (f Kind) isTime() bool {
	return f == KindReset || f == KindResetAfter || f == KindWindow || f == KindRetryAfter
}

// A wordClass is the role of a word in a name.
type wordClass uint8

const (
	classQualifier wordClass = iota // part of the name of the bucket, such as all unknown words
	classFiller                     // without meaning
	classKeyword                    // marks a name of rate limits
	classKind                       // a field word; the rightmost one is used
	classWeakKind                   // a field word if there is no strong one, otherwise a qualifier
	classUnit                       // what is counted
	classWindow                     // the length of the window
	classScale                      // unit of time of the value, after a field that is a time
	classRelative                   // after reset: the value is a delay
	classAbsolute                   // after reset: the value is an instant
)

// A dictWord is a word of a header name.
type dictWord struct {
	class      wordClass
	kind       Kind
	unit       string        // classUnit, classWindow; "" means requests
	onlyLimits bool          // classUnit: this unit counts only limits
	duration   time.Duration // classWindow, classScale; 0 for months, whose length varies
	isPlan     bool          // the quota may be one of seats or storage
}

const day = 24 * time.Hour

var dictionary = map[string]dictWord{
	"ratelimit": {class: classKeyword}, "ratelimits": {class: classKeyword}, "ratelimiting": {class: classKeyword},
	"throttle": {class: classKeyword}, "throttling": {class: classKeyword},

	"limit": {class: classKind, kind: KindLimit}, "limits": {class: classKind, kind: KindLimit},
	"remaining": {class: classKind, kind: KindRemaining}, "remain": {class: classKind, kind: KindRemaining},
	"left": {class: classKind, kind: KindRemaining}, "available": {class: classKind, kind: KindRemaining},
	"used": {class: classKind, kind: KindUsed}, "usage": {class: classKind, kind: KindUsed, isPlan: true},
	"observed": {class: classKind, kind: KindUsed}, "consumed": {class: classKind, kind: KindUsed},
	"reset": {class: classKind, kind: KindReset}, "resets": {class: classKind, kind: KindReset},
	"resettime": {class: classKind, kind: KindReset}, "resetat": {class: classKind, kind: KindReset},
	"resetdate": {class: classKind, kind: KindReset}, "resettimestamp": {class: classKind, kind: KindReset},
	"resetafter": {class: classKind, kind: KindResetAfter}, "resetin": {class: classKind, kind: KindResetAfter},
	"period": {class: classKind, kind: KindWindow}, "interval": {class: classKind, kind: KindWindow},
	"window": {class: classKind, kind: KindWindow}, "renewalperiod": {class: classKind, kind: KindWindow},
	"timewindow": {class: classKind, kind: KindWindow}, "timeframe": {class: classKind, kind: KindWindow},
	"policy": {class: classKind, kind: KindPolicy}, "policies": {class: classKind, kind: KindPolicy},
	"fillrate": {class: classKind, kind: KindRate}, "refillrate": {class: classKind, kind: KindRate},
	"replenishrate": {class: classKind, kind: KindRate}, "restorerate": {class: classKind, kind: KindRate},
	"retryafter": {class: classKind, kind: KindRetryAfter}, "retryin": {class: classKind, kind: KindRetryAfter},

	"max": {class: classWeakKind, kind: KindLimit}, "maximum": {class: classWeakKind, kind: KindLimit},
	"quota": {class: classWeakKind, kind: KindLimit, isPlan: true}, "capacity": {class: classWeakKind, kind: KindLimit},
	"total": {class: classWeakKind, kind: KindLimit}, "allowed": {class: classWeakKind, kind: KindLimit},
	"allowance": {class: classWeakKind, kind: KindLimit}, "allotted": {class: classWeakKind, kind: KindLimit},
	"count": {class: classWeakKind, kind: KindUsed}, "current": {class: classWeakKind, kind: KindUsed},
	"rate": {class: classWeakKind, kind: KindRate},
	"next": {class: classWeakKind, kind: KindReset}, "expires": {class: classWeakKind, kind: KindReset},
	"expiry": {class: classWeakKind, kind: KindReset}, "expire": {class: classWeakKind, kind: KindReset},
	"renew": {class: classWeakKind, kind: KindReset}, "renews": {class: classWeakKind, kind: KindReset},
	"refresh": {class: classWeakKind, kind: KindReset}, "ttl": {class: classWeakKind, kind: KindResetAfter},
	"resource": {class: classWeakKind, kind: KindName}, "bucket": {class: classWeakKind, kind: KindName},
	"name": {class: classWeakKind, kind: KindName}, "by": {class: classWeakKind, kind: KindName},
	"reason": {class: classWeakKind, kind: KindName}, "group": {class: classWeakKind, kind: KindName},

	"request": {class: classUnit, onlyLimits: true}, "requests": {class: classUnit, onlyLimits: true},
	"req": {class: classUnit, onlyLimits: true}, "reqs": {class: classUnit, onlyLimits: true},
	"call": {class: classUnit, onlyLimits: true}, "calls": {class: classUnit, onlyLimits: true},
	"hits":    {class: classUnit, onlyLimits: true},
	"tokens":  {class: classUnit, unit: "tokens", onlyLimits: true},
	"credits": {class: classUnit, unit: "credits", onlyLimits: true}, "credit": {class: classUnit, unit: "credits", onlyLimits: true},
	"onetime": {class: classUnit, unit: "credits"}, "prepaid": {class: classUnit, unit: "credits"}, "purchased": {class: classUnit, unit: "credits"},
	"points": {class: classUnit, unit: "points", onlyLimits: true}, "point": {class: classUnit, unit: "points"},
	"cost": {class: classUnit, unit: "cost"}, "complexity": {class: classUnit, unit: "complexity", onlyLimits: true},
	"weight": {class: classUnit, unit: "weight", onlyLimits: true}, "orders": {class: classUnit, unit: "orders"},
	"order": {class: classUnit, unit: "orders"}, "bytes": {class: classUnit, unit: "bytes"},
	"images": {class: classUnit, unit: "images"}, "pages": {class: classUnit, unit: "pages"},
	"characters": {class: classUnit, unit: "characters"}, "chars": {class: classUnit, unit: "characters"},
	"entities": {class: classUnit, unit: "entities"}, "records": {class: classUnit, unit: "records"},
	"rows": {class: classUnit, unit: "rows"}, "events": {class: classUnit, unit: "events"},
	"recipient": {class: classUnit, unit: "recipients", onlyLimits: true}, "recipients": {class: classUnit, unit: "recipients", onlyLimits: true},
	"messages": {class: classUnit, unit: "messages", onlyLimits: true}, "emails": {class: classUnit, unit: "emails", onlyLimits: true},
	"seats": {class: classUnit, unit: "seats"}, "storage": {class: classUnit, unit: "storage"},
	"error": {class: classUnit, unit: "errors"}, "errors": {class: classUnit, unit: "errors"},
	"percent": {class: classUnit, unit: "percent"}, "percentage": {class: classUnit, unit: "percent"},
	"utilization": {class: classUnit, unit: "fraction"}, "utilisation": {class: classUnit, unit: "fraction"},
	"fraction": {class: classUnit, unit: "fraction"}, "ratio": {class: classUnit, unit: "fraction"},
	"concurrent":  {class: classUnit, unit: unitConcurrent, onlyLimits: true},
	"concurrency": {class: classUnit, unit: unitConcurrent, onlyLimits: true},

	"qps": {class: classWindow, duration: time.Second}, "qpm": {class: classWindow, duration: time.Minute},
	"rps": {class: classWindow, duration: time.Second}, "rpm": {class: classWindow, duration: time.Minute},
	"rph": {class: classWindow, duration: time.Hour}, "rpd": {class: classWindow, duration: day},
	"tpm": {class: classWindow, duration: time.Minute, unit: "tokens"},
	"tph": {class: classWindow, duration: time.Hour, unit: "tokens"},
	"tpd": {class: classWindow, duration: day, unit: "tokens"},

	"second": {class: classWindow, duration: time.Second}, "secondly": {class: classWindow, duration: time.Second},
	"persecond": {class: classWindow, duration: time.Second}, "minute": {class: classWindow, duration: time.Minute},
	"min": {class: classWindow, duration: time.Minute}, "minutely": {class: classWindow, duration: time.Minute},
	"perminute": {class: classWindow, duration: time.Minute}, "hour": {class: classWindow, duration: time.Hour},
	"hourly": {class: classWindow, duration: time.Hour}, "perhour": {class: classWindow, duration: time.Hour},
	"day": {class: classWindow, duration: day}, "daily": {class: classWindow, duration: day},
	"today": {class: classWindow, duration: day}, "perday": {class: classWindow, duration: day},
	"week": {class: classWindow, duration: 7 * day}, "weekly": {class: classWindow, duration: 7 * day},
	"month": {class: classWindow}, "monthly": {class: classWindow}, "year": {class: classWindow},

	"ms": {class: classScale, duration: time.Millisecond}, "millis": {class: classScale, duration: time.Millisecond},
	"milliseconds": {class: classScale, duration: time.Millisecond}, "seconds": {class: classScale, duration: time.Second},
	"secs": {class: classScale, duration: time.Second}, "sec": {class: classScale, duration: time.Second},

	"after": {class: classRelative}, "in": {class: classRelative}, "delta": {class: classRelative},
	"at": {class: classAbsolute}, "date": {class: classAbsolute}, "timestamp": {class: classAbsolute},
	"epoch": {class: classAbsolute}, "utc": {class: classAbsolute}, "unix": {class: classAbsolute}, "on": {class: classAbsolute},

	"x": {class: classFiller}, "http": {class: classFiller}, "per": {class: classFiller}, "this": {class: classFiller},
	"header": {class: classFiller}, "info": {class: classFiller}, "of": {class: classFiller}, "the": {class: classFiller},
}

// suffixes are the field words that may end a word without a separator, as in UserLimit,
// requestsRemaining or DayLimit. If one suffix ends with another, the longer one comes
// first.
var suffixes = [...]string{
	"ratelimit", "limit", "remaining", "resettime", "reset", "usage", "used", "quota", "interval", "period", "header", "left",
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

// Properties of a pair of letters, for mayStateLimit.
const (
	pairOfLimit  = 1 << iota // of a word that is enough for a name to be about limits
	pairOfField              // of a word that names a field
	pairOfDetail             // of a word that makes a name with a field one about limits
)

// letterPairs returns the properties of two letters in upper case. For each word of the
// dictionary with one of these properties, a pair was chosen that few other words contain:
// MI for limit, EQ for requests. A digit and a letter may be a window such as 1m.
var letterPairs = sync.OnceValue(func() *[96][32]uint8 {
	table := new([96][32]uint8)
	for i, list := range [...]string{
		"MI HR RY " + // limit, throttle, retry
			"AX UO CI OT OW", // also after rate, or with a value such as 2/40: max, quota, capacity, total and allotted, allowed
		"AI FT AV RV US AG BS SU ET OD WI FR " + // remaining, left, available, interval, used, usage, observed, consumed, reset, period, window, timeframe
			"OL AT UN RR XT XP EW TT SO CK NA BY UP", // policy, rate, count, current, next, expires, renew, ttl, resource and reason, bucket, name, by, group
		"EQ CA HI OK CR OI XI WE IP SS MA NC " + // requests, calls, hits, tokens, credits, points, complexity, weight and week, recipients, messages, emails, concurrent
			"QP RP TP EC HO DA MO YE " + // qps and qpm, rps, tpm, second, hour, day, month, year
			"US AG BS SU UN RR", // used, usage, observed, consumed, count, current
	} {
		for pair := range strings.FieldsSeq(list) {
			table[pair[0]][pair[1]&31] |= 1 << i
		}
	}
	for digit := '0'; digit <= '9'; digit++ {
		for _, unit := range "SMHDW" {
			table[digit&0x5f][unit&31] |= pairOfDetail
		}
	}
	return table
})
