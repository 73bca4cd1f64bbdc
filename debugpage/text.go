package debugpage

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxText is the maximum length of a text that others state, in bytes.
const maxText = 300

// clean returns s without control characters and characters that change the direction of
// text, and cut after maxText bytes.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(clip(s), "\uFFFD"))
}

// clip returns a copy of s that is cut after maxText bytes. A part of a string would keep the
// whole string in memory.
func clip(s string) string {
	if len(s) <= maxText {
		return strings.Clone(s)
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

var numbers = regexp.MustCompile(`\d[\d.,]*(?: (?:ms|s|min|h|d)\b)?(?: \d+ (?:s|min|h)\b)?`)

// withoutNumbers returns s with "#" for each number and duration.
func withoutNumbers(s string) string { return numbers.ReplaceAllLiteralString(s, "#") }

// number returns n with commas.
func number(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// decimal returns v with at most three digits, or as a whole number with commas.
func decimal(v float64) string {
	if math.Abs(v) >= 100 {
		return number(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// seconds returns d in seconds, for JSON.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
