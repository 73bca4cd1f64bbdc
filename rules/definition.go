package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/warmup"
)

// definition returns all properties of l except its position. Two limits with the same ID and the
// same definition are equal. Set.String prints definitions, so a property that is missing is
// missing from both. TestDefinition_coversEveryField checks that all properties are included.
func (l *Limit) definition() string {
	all := []string{l.amountText()}
	for _, p := range l.Active {
		all = append(all, p.text())
	}
	for _, word := range []struct {
		is   bool
		text string
	}{
		{l.Shadow, "shadow"},
		{l.Borrow != "", "borrow " + quoteIfNeeded(l.Borrow)},
		{l.Ban != nil, banText(l.Ban)},
		{l.Cost > 1, fmt.Sprintf("costs %d", l.Cost)},
		{l.match != "", "matches " + l.match},
		{l.Keyed, "each " + quoteList(l.keys)},
		{l.skipUnidentified, "requests without skipped"},
		{l.Keyed, fmt.Sprintf("%d keys", l.maxKeys())},
		{l.Compact, "compact"},
		{len(l.Replaces) > 0, "replaces " + quoteList(l.Replaces)},
		{l.Name != "", "named " + quoteIfNeeded(l.Name)},
	} {
		if word.is {
			all = append(all, word.text)
		}
	}
	return strings.Join(all, "; ")
}

// quoteList returns names in one line.
func quoteList(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = quoteIfNeeded(name)
	}
	return strings.Join(all, ", ")
}

// amountText returns the algorithm of l and its amount.
func (l *Limit) amountText() string {
	if l.Spec == nil {
		return l.Algorithm()
	}
	return l.Algorithm() + " " + amountOf(l.Spec, l.Hard)
}

// amountOf returns the text of the amount of spec, and of hard if it is not nil.
func amountOf(spec, hard Spec) string {
	switch {
	case spec == nil:
		return "nothing"
	case hard == nil:
		return describe(spec)
	}
	return describe(spec) + ", and marked up to " + describe(hard)
}

// describe returns all properties of s except its name.
func describe(s Spec) string {
	switch s := s.(type) {
	case throttle.Limit:
		return rateText(s)
	case throttle.RefillBucketConfig:
		return rateText(s.Limit)
	case throttle.LeakyBucketConfig:
		return rateText(s.Limit) + optionally(s.Queue > 0, "queue %d", s.Queue)
	case throttle.FixedWindowConfig:
		return windowText(s)
	case throttle.SlidingLogConfig:
		return rateText(s.Limit) + optionally(s.MinGap > 0, "gap %s", formatDuration(s.MinGap)) + optionally(s.CountRejected, "counting rejected")
	case throttle.SlidingCounterConfig:
		return rateText(s.Limit) + optionally(s.Parts > 0, "by %s", formatDuration(s.Limit.Per/time.Duration(max(s.Parts, 1))))
	case throttle.NginxConfig:
		l := throttle.Limit{Count: s.Rate, Per: s.Per}
		return rateText(l) + optionally(s.Burst > 0, "burst %d", s.Burst) + optionally(s.Delay > 0, "delay %d", s.Delay) + optionally(s.NoDelay, "nodelay")
	case throttle.ConcurrencyConfig:
		return strconv.FormatInt(s.Count, 10) + " at a time" + optionally(s.MaxAge > 0, "lost after %s", formatDuration(s.MaxAge))
	case warmup.Config:
		return rateText(s.Limit) + optionally(s.Period > 0, "warm after %s", formatDuration(s.Period)) +
			optionally(s.ColdFactor > 0, "cold factor %v", s.ColdFactor) + optionally(s.Outage > 0, "cold after an outage of %s", formatDuration(s.Outage))
	}
	return fmt.Sprint(s)
}

// optionally returns ", " and the formatted text if has is true, and "" otherwise.
func optionally(has bool, format string, args ...any) string {
	if !has {
		return ""
	}
	return ", " + fmt.Sprintf(format, args...)
}

// rateText returns the numbers of l.
func rateText(l throttle.Limit) string {
	s := strconv.FormatInt(l.Count, 10) + " per " + formatDuration(l.Per)
	return s + optionally(l.Burst > 0 && l.Burst != l.Count, "burst %d", l.Burst)
}

// windowText returns the numbers of q and the start of its windows.
func windowText(q throttle.FixedWindowConfig) string {
	count := strconv.FormatInt(q.Count, 10)
	if q.Per == 0 {
		zone := "UTC"
		if q.Zone != nil {
			zone = q.Zone.String()
		}
		return count + " " + q.Align.String() + " in " + zone
	}
	return count + " per " + formatDuration(q.Per) + " " + q.Align.String()
}

func banText(s *keyed.BanConfig) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("ban of %s after %d rejections in %s", formatDuration(s.Duration), s.Rejections, formatDuration(s.Within)) +
		optionally(s.MaxDuration > 0, "at most %s", formatDuration(s.MaxDuration)) + optionally(s.ForgetAfter > 0, "forgotten after %s", formatDuration(s.ForgetAfter)) +
		optionally(s.MaxKeys > 0, "of %d keys", s.MaxKeys) + optionally(s.Name != "", "named %s", quoteIfNeeded(s.Name))
}

// text returns the times at which p applies, and what it allows.
func (p Period) text() string { return p.String() + ": " + amountOf(p.Spec, p.Hard) }

// String returns the times at which p applies, in the format of a file.
func (p Period) String() string {
	return fmt.Sprintf("%s %s-%s %s", p.Days, formatClock(p.From), formatClock(p.To), p.zone())
}

// sameShape reports whether the limiter of a can be changed to that of b while it is in use.
func sameShape(a, b *Limit) bool {
	fixedParts := func(l *Limit) string {
		return fmt.Sprint(l.Keyed, l.MaxKeys, l.Compact, l.Shadow, l.Unlimited, l.Blocked && len(l.Active) == 0, l.Hard != nil) +
			fmt.Sprintf("%q%q%q", l.Borrow, banText(l.Ban), l.keys)
	}
	if fixedParts(a) != fixedParts(b) {
		return false
	}
	all := append(a.allSpecs(), b.allSpecs()...)
	for i := range 2 { // Spec, then Hard
		var first Spec
		for _, p := range all {
			if first == nil {
				first = p[i]
			}
			if p[i] != nil && !resizable(first, p[i]) {
				return false
			}
		}
	}
	return true
}

// allSpecs returns each Spec and Hard of l: the usual ones, then those of its periods.
func (l *Limit) allSpecs() [][2]Spec {
	all := [][2]Spec{{l.Spec, l.Hard}}
	for _, p := range l.Active {
		all = append(all, [2]Spec{p.Spec, p.Hard})
	}
	return all
}
