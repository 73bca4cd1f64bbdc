package rules

import (
	"slices"
	"time"
)

// periodAt returns the first of l.Active that applies at t. It returns nil if there is none.
func (l *Limit) periodAt(t time.Time) *Period {
	for i := range l.Active {
		if p := &l.Active[i]; p.contains(t) {
			return p
		}
	}
	return nil
}

// contains reports whether p applies at t in local time. A period that ends on the next day
// belongs to the day on which it begins.
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

// timeOfDay returns the time since midnight that a clock shows at t.
func timeOfDay(t time.Time) time.Duration {
	h, m, s := t.Clock()
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(s)*time.Second + time.Duration(t.Nanosecond())
}

// lookAheadDays is the number of days that are searched for the next change. They contain each
// weekday twice, since a clock change may skip a period once.
const lookAheadDays = 15

// nextChange returns the first time after t at which periodAt differs from periodAt(t). It returns
// the zero time if there is none within lookAheadDays.
//
// The result of periodAt can change only when local time reaches the beginning or the end of a
// period, at midnight, and at clock changes. All these times are candidates, so that skipped and
// repeated hours need no special cases.
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

// boundaries appends the times around t at which p may begin or end.
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
