// Package explain builds the sentences with which errors, logs, spans and the debug page
// describe waits, so that all of them use the same words.
package explain

import (
	"errors"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reasons are the reasons of package quota for which a request waits.
var reasons = []string{"quota", "retry-after", "learned rate", "slow start", "overload"}

// SplitLimit splits the name of a quota, such as "api.example.com: retry-after", into the
// quota and the reason for which it rejects requests. The reason is "" for other limits.
func SplitLimit(name string) (limit, reason string) {
	i := strings.LastIndex(name, ": ")
	if i < 0 {
		return name, ""
	}
	reason = name[i+len(": "):]
	if !slices.Contains(reasons, reason) && !strings.HasPrefix(reason, "quota of ") {
		return name, ""
	}
	return name[:i], reason
}

// Limit describes the limit with a name as decisions have it:
//
//	own                            limit own
//	api.example.com: quota         quota api.example.com
//	api.example.com: retry-after   quota api.example.com (retry-after)
func Limit(name string) string {
	limit, reason := SplitLimit(name)
	switch unit, isUnit := strings.CutPrefix(reason, "quota of "); {
	case name == "":
		return "a limit"
	case reason == "":
		return "limit " + name
	case reason == "quota":
		return "quota " + limit
	case isUnit:
		return "quota " + limit + " (" + unit + ")"
	}
	return "quota " + limit + " (" + reason + ")"
}

// Wait describes a wait for the limit with a name, while other callers were ahead:
//
//	waited 1.2 s for quota api.example.com (retry-after), 3 ahead
func Wait(waited time.Duration, name string, ahead int) string {
	return "waited " + Duration(waited) + " for " + Limit(name) + Ahead(ahead)
}

// Ahead returns ", 3 ahead" for 3, and "" for 0.
func Ahead(n int) string {
	if n <= 0 {
		return ""
	}
	return ", " + strconv.Itoa(n) + " ahead"
}

// Duration returns d with at most two units, such as "850 ms", "1.2 s" and "2 min 5 s". The
// unit never changes by rounding up: 59.99 s are "1 min".
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Duration(-max(d, -math.MaxInt64))
	case d == 0:
		return "0 s"
	case d < 10*time.Millisecond:
		return decimal(d, time.Millisecond) + " ms"
	case d.Round(time.Millisecond) < time.Second:
		return strconv.FormatInt(int64(d.Round(time.Millisecond)/time.Millisecond), 10) + " ms"
	case d.Round(100*time.Millisecond) < time.Minute:
		return decimal(d, time.Second) + " s"
	case d.Round(time.Second) < time.Hour:
		return pair(d.Round(time.Second), time.Minute, "min", time.Second, "s")
	case d.Round(time.Minute) < 24*time.Hour:
		return pair(d.Round(time.Minute), time.Hour, "h", time.Minute, "min")
	}
	return pair(d.Round(time.Hour), 24*time.Hour, "d", time.Hour, "h")
}

// DurationUp is like Duration, and never shorter than d: for waits.
func DurationUp(d time.Duration) string {
	digit := time.Hour
	switch {
	case d < 10*time.Millisecond:
		digit = 100 * time.Microsecond
	case d < time.Second:
		digit = time.Millisecond
	case d < time.Minute:
		digit = 100 * time.Millisecond
	case d < time.Hour:
		digit = time.Second
	case d < 24*time.Hour:
		digit = time.Minute
	}
	if rest := d % digit; rest > 0 && d < math.MaxInt64-digit {
		d += digit - rest
	}
	return Duration(d)
}

// decimal returns d in units with one digit after the point, which is omitted if it is 0.
func decimal(d, unit time.Duration) string {
	s := strconv.FormatFloat(float64(d)/float64(unit), 'f', 1, 64)
	return strings.TrimSuffix(s, ".0")
}

// pair returns d in two units. A smaller unit of 0 is omitted.
func pair(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	s := strconv.FormatInt(int64(d/large), 10) + " " + largeName
	if rest := d % large / small; rest > 0 {
		s += " " + strconv.FormatInt(int64(rest), 10) + " " + smallName
	}
	return s
}

// maxError is the maximum length of an error in a sentence.
const maxError = 1000

// duration matches what time.Duration.String returns, such as "499.396837ms" and "1m0.5s".
var duration = regexp.MustCompile(`(^|[ (])(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?(?:s|ms|µs)\b`)

// RoundDurations writes the durations in s as Duration does.
func RoundDurations(s string) string {
	return duration.ReplaceAllStringFunc(s, func(match string) string {
		text := strings.TrimLeft(match, " (")
		d, err := time.ParseDuration(text)
		if err != nil {
			return match
		}
		return strings.TrimSuffix(match, text) + Duration(d)
	})
}

// Error returns the text of err without the user, query and fragment of URLs in it, and
// without line breaks. It is cut after 1,000 bytes.
func Error(err error) string {
	s := err.Error()
	var b strings.Builder
	for s != "" {
		i := strings.Index(s, "://")
		if i < 0 {
			break
		}
		i += len("://")
		b.WriteString(s[:i])
		end := i + urlEnd(s[i:])
		b.WriteString(redact(s[i:end]))
		s = s[end:]
	}
	b.WriteString(s)
	s = strings.Map(printable, b.String()) // also replaces what is not UTF-8
	if len(s) > maxError {
		s = strings.ToValidUTF8(s[:maxError], "") + "..."
	}
	return s
}

// ErrorWithoutKeys is like Error, and removes the keys of limits, which may be secrets, such as
// the API key of a client: those that keyOf returns for the errors in the tree of err. The text of
// such an error has its key as ` for key "k"`.
func ErrorWithoutKeys(err error, keyOf func(error) string) string {
	text := err.Error()
	forEach(err, func(err error) {
		if key := keyOf(err); key != "" {
			text = strings.ReplaceAll(text, " for key "+strconv.Quote(key), "")
		}
	})
	return Error(errors.New(text))
}

// forEach calls f with each error in the tree of err.
func forEach(err error, f func(error)) {
	if err == nil {
		return
	}
	f(err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		forEach(e.Unwrap(), f)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			forEach(err, f)
		}
	}
}

// urlEnd returns the length of the URL at the start of s, which has no scheme.
func urlEnd(s string) int {
	if i := strings.IndexAny(s, " \t\r\n\"'<>`"); i >= 0 {
		return i
	}
	return len(s)
}

// redact removes the user, query and fragment of a URL without its scheme.
func redact(url string) string {
	rest := ""
	if i := strings.IndexAny(url, "?#"); i >= 0 {
		if strings.HasSuffix(url, ":") { // as in "Get https://host/?a=b: rejected"
			rest = ":"
		}
		url = url[:i]
	}
	authority, path := url, ""
	if i := strings.IndexByte(url, '/'); i >= 0 {
		authority, path = url[:i], url[i:]
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		authority = authority[i+1:]
	}
	return authority + path + rest
}

// printable replaces control characters, which could forge lines of a log.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f {
		return ' '
	}
	return r
}
