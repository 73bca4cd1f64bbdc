package rules

import (
	"slices"
	"time"
)

// periodAt returns the first of l.Active that holds at t; nil: none does.
func (l *Limit) periodAt(t time.Time) *Period {
	for i := range l.Active {
		if p := &l.Active[i]; p.contains(t) {
			return p
		}
	}
	return nil
}

// contains reports whether p holds at t, by what the clocks of its zone show then. One
// that goes on until the next day is that of the day on which it began.
func (p *Period) contains(t time.Time) bool {
	t = t.In(p.zone())
	at, today := timeOfDay(t), t.Weekday()
	if p.From < p.To {
		return p.Days.Has(today) && p.From <= at && at < p.To
	}
	yesterday := (today + 6) % 7
	return p.Days.Has(today) && p.From <= at || p.Days.Has(yesterday) && at < p.To
}

func (p *Period) zone() *time.Location {
	if p.Zone == nil {
		return time.UTC
	}
	return p.Zone
}

// timeOfDay returns what the clocks show at t, since midnight.
func timeOfDay(t time.Time) time.Duration {
	h, m, s := t.Clock()
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second + time.Duration(t.Nanosecond())
}

// lookAheadDays is how many days ahead a change is looked for: each weekday comes, and
// one more where a change of the clocks has swallowed a period.
const lookAheadDays = 15

// nextChange returns the first instant after t at which another period of l holds
// than at t. It is zero if there is none within a fortnight.
//
// What holds can change only where the clocks show the beginning or the end of a
// period, and where they are put forward or back. All these instants are tried, so
// that no case of a skipped or repeated hour needs a rule of its own.
func (l *Limit) nextChange(t time.Time) time.Time {
	var candidates []time.Time
	for i := range l.Active {
		candidates = l.Active[i].boundaries(candidates, t)
	}
	slices.SortFunc(candidates, time.Time.Compare)
	now := l.periodAt(t)
	for _, at := range candidates {
		if at.After(t) && l.periodAt(at) != now {
			return at
		}
	}
	return time.Time{}
}

// boundaries appends the instants around t at which p may begin or end.
func (p *Period) boundaries(candidates []time.Time, t time.Time) []time.Time {
	local := t.In(p.zone())
	offsets := []int{offset(local)}
	end := local.AddDate(0, 0, lookAheadDays)
	for from := local; ; {
		_, next := from.ZoneBounds()
		if next.IsZero() || !next.Before(end) || !next.After(from) {
			break
		}
		candidates, offsets = append(candidates, next.Round(0)), append(offsets, offset(next))
		from = next
	}
	y, m, d := local.Date()
	for day := range lookAheadDays + 1 {
		midnight := time.Date(y, m, d+day-1, 0, 0, 0, 0, time.UTC)
		for _, o := range offsets {
			shift := -time.Duration(o) * time.Second
			candidates = append(candidates, midnight.Add(p.From+shift), midnight.Add(p.To+shift), midnight.Add(shift))
		}
	}
	return candidates
}

func offset(t time.Time) int {
	_, o := t.Zone()
	return o
}
