package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// definition returns all that l says but its place: two limits of one definition at
// one place are the same. It is also how a limit is printed, so that nothing that
// matters is missing from either: see TestDefinition_missesNothing.
func (l *Limit) definition() string {
	all := []string{l.allows()}
	for _, p := range l.Active {
		all = append(all, p.text())
	}
	for _, word := range []struct {
		is   bool
		text string
	}{
		{l.Shadow, "shadow"},
		{l.Elastic != "", "elastic " + plain(l.Elastic)},
		{l.Penalty != nil, penaltyText(l.Penalty)},
		{l.Cost > 1, fmt.Sprintf("costs %d", l.Cost)},
		{l.match != "", "matches " + l.match},
		{l.Keyed, "each " + list(l.keys)},
		{l.skips, "not who has none"},
		{l.Keyed, fmt.Sprintf("%d keys", l.maxKeys())},
		{l.Compact, "compact"},
		{len(l.Replaces) > 0, "replaces " + list(l.Replaces)},
		{l.Name != "", "named " + plain(l.Name)},
	} {
		if word.is {
			all = append(all, word.text)
		}
	}
	return strings.Join(all, "; ")
}

// list returns names in one line.
func list(names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = plain(name)
	}
	return strings.Join(all, ", ")
}

// allows returns the algorithm of l and its amount.
func (l *Limit) allows() string {
	if l.Spec == nil {
		return l.Algorithm()
	}
	return l.Algorithm() + " " + amountOf(l.Spec, l.Hard)
}

// amountOf returns what a spec allows, and how far beyond it hard goes.
func amountOf(spec, hard Spec) string {
	switch {
	case spec == nil:
		return "nothing"
	case hard == nil:
		return describe(spec)
	}
	return describe(spec) + ", and marked up to " + describe(hard)
}

// describe returns all of s but its name.
func describe(s Spec) string {
	switch s := s.(type) {
	case throttle.Limit:
		return rate(s)
	case throttle.Refill:
		return rate(s.Limit)
	case throttle.Leak:
		return rate(s.Limit) + also(s.Queue > 0, "queue %d", s.Queue)
	case throttle.Quota:
		return windows(s)
	case throttle.Log:
		return rate(s.Limit) + also(s.MinGap > 0, "gap %s", formatDuration(s.MinGap)) + also(s.CountRefused, "counting refused")
	case throttle.Counter:
		return rate(s.Limit)
	case throttle.Parts:
		return rate(s.Limit) + also(true, "by %s", formatDuration(s.Per/time.Duration(max(s.Parts, 1))))
	case throttle.LimitReq:
		l := throttle.Limit{Count: s.Rate, Per: s.Per}
		return rate(l) + also(s.Burst > 0, "burst %d", s.Burst) + also(s.Delay > 0, "delay %d", s.Delay) + also(s.NoDelay, "nodelay")
	case throttle.Capacity:
		return strconv.FormatInt(s.Count, 10) + " at a time" + also(s.MaxAge > 0, "lost after %s", formatDuration(s.MaxAge))
	case warmup.Curve:
		return rate(s.Limit) + also(s.Over > 0, "warm after %s", formatDuration(s.Over)) +
			also(s.Cold > 0, "cold %v", s.Cold) + also(s.Outage > 0, "cold after an outage of %s", formatDuration(s.Outage))
	}
	return s.String()
}

// also returns a further word of a limit, if it has it.
func also(has bool, format string, args ...any) string {
	if !has {
		return ""
	}
	return ", " + fmt.Sprintf(format, args...)
}

// rate returns the numbers of l.
func rate(l throttle.Limit) string {
	s := strconv.FormatInt(l.Count, 10) + " per " + formatDuration(l.Per)
	return s + also(l.Burst > 0 && l.Burst != l.Count, "burst %d", l.Burst)
}

// windows returns the numbers of q and where its windows begin.
func windows(q throttle.Quota) string {
	count := strconv.FormatInt(q.Count, 10)
	if q.Per == 0 {
		zone := "UTC"
		if q.Zone != nil {
			zone = q.Zone.String()
		}
		return count + " " + q.Anchor.String() + " in " + zone
	}
	return count + " per " + formatDuration(q.Per) + " " + q.Anchor.String()
}

func penaltyText(s *throttle.Sentence) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("penalty of %s after %d refusals in %s", formatDuration(s.For), s.After, formatDuration(s.Within)) +
		also(s.Max > 0, "at most %s", formatDuration(s.Max)) + also(s.Quiet > 0, "until quiet for %s", formatDuration(s.Quiet)) +
		also(s.MaxKeys > 0, "of %d keys", s.MaxKeys) + also(s.Name != "", "named %s", plain(s.Name))
}

// text returns when p holds, and what it allows.
func (p Period) text() string { return p.String() + ": " + amountOf(p.Spec, p.Hard) }

// String returns when p holds, in the words of a file.
func (p Period) String() string {
	return fmt.Sprintf("%s %s-%s %s", p.Days, formatClock(p.From), formatClock(p.To), p.zone())
}

// sameShape reports whether the limiter of a can become that of b while in use.
func sameShape(a, b *Limit) bool {
	outside := func(l *Limit) string {
		return fmt.Sprint(l.Keyed, l.MaxKeys, l.Compact, l.Shadow, l.Unlimited, l.Blocked && len(l.Active) == 0, l.Hard != nil) +
			fmt.Sprintf("%q%q%q", l.Elastic, penaltyText(l.Penalty), l.keys)
	}
	if outside(a) != outside(b) {
		return false
	}
	all := append(a.phases(), b.phases()...)
	for i := range 2 { // the limit itself, and what is marked beyond it
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

// phases returns all that l may allow: usually, then at the times of its periods.
func (l *Limit) phases() [][2]Spec {
	all := [][2]Spec{{l.Spec, l.Hard}}
	for _, p := range l.Active {
		all = append(all, [2]Spec{p.Spec, p.Hard})
	}
	return all
}
