package rules

import (
	"slices"
	"time"
)

// periodAt returns the first of l.Active that holds at t; nil: none does.
func (l *Limit) periodAt(t time.Time) *Period {
	for i := range l.Active {
		if p := &l.Active[i]; p.holds(t) {
			return p
		}
	}
	return nil
}

// holds reports whether p holds at t, by what the clocks of its zone show then. One
// that goes on until the next day is that of the day on which it began.
func (p *Period) holds(t time.Time) bool {
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

// horizon is how many days ahead a change is looked for: each weekday comes, and
// one more where a change of the clocks has swallowed a period.
const horizon = 15

// switchAfter returns the first instant after t at which another period of l holds
// than at t. It is zero if there is none within a fortnight.
//
// What holds can change only where the clocks show the beginning or the end of a
// period, and where they are put forward or back. All these instants are tried, so
// that no case of a skipped or repeated hour needs a rule of its own.
func (l *Limit) switchAfter(t time.Time) time.Time {
	var tries []time.Time
	for i := range l.Active {
		tries = l.Active[i].edges(tries, t)
	}
	slices.SortFunc(tries, time.Time.Compare)
	now := l.periodAt(t)
	for _, at := range tries {
		if at.After(t) && l.periodAt(at) != now {
			return at
		}
	}
	return time.Time{}
}

// edges appends the instants around t at which p may begin or end.
func (p *Period) edges(tries []time.Time, t time.Time) []time.Time {
	local := t.In(p.zone())
	offsets := []int{offset(local)}
	end := local.AddDate(0, 0, horizon)
	for from := local; ; {
		_, next := from.ZoneBounds()
		if next.IsZero() || !next.Before(end) || !next.After(from) {
			break
		}
		tries, offsets = append(tries, next.Round(0)), append(offsets, offset(next))
		from = next
	}
	y, m, d := local.Date()
	for day := range horizon + 1 {
		midnight := time.Date(y, m, d+day-1, 0, 0, 0, 0, time.UTC)
		for _, o := range offsets {
			shift := -time.Duration(o) * time.Second
			tries = append(tries, midnight.Add(p.From+shift), midnight.Add(p.To+shift), midnight.Add(shift))
		}
	}
	return tries
}

func offset(t time.Time) int {
	_, o := t.Zone()
	return o
}
