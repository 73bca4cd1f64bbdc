package headercases

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/quota/headers"
)

// Compare returns what is wrong in report, or "" if nothing is.
//
// A limit is correct if all of its properties are: its counts, its reset within a second,
// its unit, its window, and its name if a header states one. Without the table, a window
// counts only if a header states it.
func (c *Case) Compare(report headers.Report, table bool) string {
	switch {
	case report.Throttled != c.Expect.Throttled:
		return fmt.Sprintf("throttled is %v, want %v", report.Throttled, c.Expect.Throttled)
	case report.HasRetryAfter != (c.Expect.RetryAfter != nil):
		return fmt.Sprintf("retry after: %v %v, want %s", report.HasRetryAfter, report.RetryAfter, format(c.Expect.RetryAfter))
	case report.HasRetryAfter && !near(report.RetryAfter.Seconds(), *c.Expect.RetryAfter, 0.001):
		return fmt.Sprintf("retry after %v, want %s s", report.RetryAfter, format(c.Expect.RetryAfter))
	case len(report.Limits) != len(c.Expect.Limits):
		return fmt.Sprintf("%d limits, want %d: %+v", len(report.Limits), len(c.Expect.Limits), report.Limits)
	}
	return c.compareLimits(report.Limits, table)
}

// compareLimits matches each expected limit with one that was parsed.
func (c *Case) compareLimits(got []headers.Limit, table bool) string {
	left := append([]headers.Limit(nil), got...)
	for i := range c.Expect.Limits {
		want, reason := &c.Expect.Limits[i], "nothing left"
		found := -1
		for j := range left {
			mismatch := c.compareLimit(&left[j], want, table)
			if mismatch == "" {
				found = j
				break
			}
			reason = mismatch
		}
		if found < 0 {
			return fmt.Sprintf("limit %d: %s in %+v", i, reason, left)
		}
		left = append(left[:found], left[found+1:]...)
	}
	return ""
}

func (c *Case) compareLimit(got *headers.Limit, want *Limit, table bool) string {
	switch {
	case c.statesName(want.Name) && !sameName(got.Name, *want.Name):
		return fmt.Sprintf("name %q, want %q", got.Name, *want.Name)
	case !sameUnit(got.Unit, want.Unit):
		return fmt.Sprintf("unit %q, want %q", got.Unit, want.Unit)
	case !sameCount(got.Limit, got.HasLimit, want.Limit):
		return fmt.Sprintf("limit %v %d, want %s", got.HasLimit, got.Limit, format(want.Limit))
	case !sameCount(got.Remaining, got.HasRemaining, want.Remaining):
		return fmt.Sprintf("remaining %v %d, want %s", got.HasRemaining, got.Remaining, format(want.Remaining))
	case want.Used != nil && !sameCount(got.Used, got.HasUsed, want.Used):
		return fmt.Sprintf("used %v %d, want %s", got.HasUsed, got.Used, format(want.Used))
	case !c.sameReset(got, want):
		return fmt.Sprintf("reset %v %v, want %s or %v", got.HasReset, got.ResetAfter, format(want.ResetAfter), want.ResetAt)
	case (table || c.carriesWindow(want)) && got.Window != seconds(want.Window):
		return fmt.Sprintf("window %v, want %s", got.Window, format(want.Window))
	case !sameRate(got, want):
		return fmt.Sprintf("rate %v, want %s, %s or %s", got.Rate, format(want.Rate), format(want.Refill), format(want.PerWindow))
	}
	return ""
}

func sameCount(got int64, has bool, want *float64) bool {
	return has == (want != nil) && (want == nil || float64(got) == *want)
}

func (c *Case) sameReset(got *headers.Limit, want *Limit) bool {
	switch {
	case want.ResetAfter != nil:
		return got.HasReset && near(got.ResetAfter.Seconds(), *want.ResetAfter, 1)
	case want.ResetAt != nil:
		delay := max(want.ResetAt.Sub(c.ReceivedAt()), 0)
		return got.HasReset && near(got.ResetAfter.Seconds(), delay.Seconds(), 1)
	}
	return !got.HasReset
}

func sameRate(got *headers.Limit, want *Limit) bool {
	switch {
	case want.Rate != nil:
		return near(got.Rate, *want.Rate, 1e-9)
	case want.Refill != nil:
		return near(got.Rate, *want.Refill, 1e-9)
	case want.PerWindow != nil:
		return near(got.Rate*got.Window.Seconds(), *want.PerWindow, 1e-6)
	}
	return true
}

// statesName reports whether a header states the complete name, in its value or in its
// name.
func (c *Case) statesName(name *string) bool {
	if name == nil {
		return false
	}
	for header, values := range c.Headers {
		if containsWord(header, *name) || containsWord(strings.Join(values, ","), *name) {
			return true
		}
	}
	return false
}

// containsWord reports whether text contains word without a letter or digit next to it.
func containsWord(text, word string) bool {
	text, word = normalize(text), normalize(word)
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		lo, hi := from+i, from+i+len(word)
		if (lo == 0 || !alphanumeric(text[lo-1])) && (hi == len(text) || !alphanumeric(text[hi])) {
			return true
		}
		from = lo + 1
	}
}

// carriesWindow reports whether a header states the window: as a parameter, in a header
// whose name mentions windows, or as a word of the name.
func (c *Case) carriesWindow(want *Limit) bool {
	if want.Window == nil {
		return false
	}
	s := strconv.FormatFloat(*want.Window, 'f', -1, 64)
	ms := strconv.FormatFloat(*want.Window*1000, 'f', -1, 64)
	for header, values := range c.Headers {
		header, v := normalize(header), normalize(strings.Join(values, ","))
		switch {
		case containsWord(v, "w="+s), containsWord(v, "window="+s), strings.Contains(v, ":"+s) && strings.Contains(header, "limit"):
			return true
		case (strings.Contains(header, "interval") || strings.Contains(header, "period") || strings.Contains(header, "window")) &&
			(containsWord(v, s) || containsWord(v, ms) || containsWord(v, s+"s")):
			return true
		case strings.Contains(header, "limit") && containsWord(v, s+"s"):
			return true
		case windowWord(header, *want.Window):
			return true
		}
	}
	return false
}

func windowWord(header string, window float64) bool {
	for word, s := range map[string]float64{"second": 1, "minute": 60, "hour": 3600, "day": 86400, "daily": 86400, "today": 86400, "1m": 60} {
		if s == window && strings.Contains(header, word) {
			return true
		}
	}
	return false
}

func sameName(a, b string) bool { return normalize(a) == normalize(b) }

func sameUnit(got, want string) bool {
	if got == "" {
		got = "requests"
	}
	if want == "" {
		want = "requests"
	}
	return normalize(got) == normalize(want)
}

// normalize returns one spelling for all spellings of a name.
func normalize(s string) string { return strings.ReplaceAll(strings.ToLower(s), "_", "-") }

func alphanumeric(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance }

func seconds(s *float64) time.Duration {
	if s == nil {
		return 0
	}
	return time.Duration(*s * float64(time.Second))
}

func format(f *float64) string {
	if f == nil {
		return "none"
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

// bodyFromHint converts the hint of a case into a body that states the same: a hint is the
// path and the value ("errors[0].type RATE_LIMITED"), or quotes the text.
func bodyFromHint(hint string) string {
	path, value, ok := strings.Cut(hint, " ")
	if name, nested := strings.CutPrefix(path, "errors[0]."); ok && nested {
		value, _, _ = strings.Cut(value, ";")
		return fmt.Sprintf(`{"errors":[{%q:%q}]}`, name, value)
	}
	return hint
}
