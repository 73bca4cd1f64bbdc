package throttle

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/stretchr/testify/require"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	require.NoError(t, err)
	return z
}

func TestAlignment_daysAcrossClockChanges(t *testing.T) {
	for name, tt := range map[string]struct {
		zone     string
		at       string // some instant of the window
		anchor   Alignment
		from, to string
	}{
		"a day that loses an hour": {"Europe/Berlin", "2026-03-29T12:00:00+02:00", EachDay, "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"},
		"a day that wins an hour":  {"Europe/Berlin", "2026-10-25T02:30:00+01:00", EachDay, "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"},
		"a month with both":        {"Europe/Berlin", "2026-10-01T00:00:00+02:00", EachMonth, "2026-10-01T00:00:00+02:00", "2026-11-01T00:00:00+01:00"},
		"a leap February":          {"UTC", "2028-02-29T23:59:59Z", EachMonth, "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"},
		"a year's end":             {"UTC", "2026-12-31T23:59:59Z", EachMonth, "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		"a midnight that is skipped": {"America/Sao_Paulo", "2018-11-04T12:00:00-02:00", EachDay,
			"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		"the evening before it": {"America/Sao_Paulo", "2018-11-03T23:30:00-03:00", EachDay,
			"2018-11-03T00:00:00-03:00", "2018-11-04T01:00:00-02:00"},
		"a day that is skipped": {"Pacific/Apia", "2011-12-29T12:00:00-10:00", EachDay,
			"2011-12-29T00:00:00-10:00", "2011-12-31T00:00:00+14:00"},
		"an hour that comes twice, first":  {"Europe/Berlin", "2026-10-25T02:30:00+02:00", EachHour, "2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00"},
		"an hour that comes twice, second": {"Europe/Berlin", "2026-10-25T02:30:00+01:00", EachHour, "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"},
		"half an hour that is repeated": {"Australia/Lord_Howe", "2026-04-05T01:45:00+10:30", EachHour,
			"2026-04-05T01:30:00+10:30", "2026-04-05T02:00:00+10:30"},
		"a midnight that comes twice": {"America/St_Johns", "2010-11-06T23:30:00-03:30", EachDay,
			"2010-11-07T00:00:00-02:30", "2010-11-08T00:00:00-03:30"}, // the clocks went back at 00:01: the first counts
		"a zone of quarters": {"Asia/Kathmandu", "2026-01-01T10:20:30+05:45", EachHour, "2026-01-01T10:00:00+05:45", "2026-01-01T11:00:00+05:45"},
		"a minute":           {"Asia/Kathmandu", "2026-01-01T10:20:30+05:45", EachMinute, "2026-01-01T10:20:00+05:45", "2026-01-01T10:21:00+05:45"},
		"before the epoch":   {"UTC", "1969-12-31T23:59:30.5Z", EachMinute, "1969-12-31T23:59:00Z", "1970-01-01T00:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339Nano, tt.at)
			require.NoError(t, err)
			from, to := tt.anchor.calendarWindow(at.In(zone(t, tt.zone)))
			require.Equal(t, tt.from, from.Format(time.RFC3339))
			require.Equal(t, tt.to, to.Format(time.RFC3339))
		})
	}
}

// Windows leave no gap, do not overlap, and contain the instants for which they were
// computed.
func TestAlignment_windowsAreContiguous(t *testing.T) {
	zones := []*time.Location{time.UTC}
	for _, name := range []string{"Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Beirut", "America/Havana", "Africa/Cairo", "America/St_Johns"} {
		zones = append(zones, zone(t, name))
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		at := time.Unix(r.Int64N(4e9)-1e9, r.Int64N(1e9)).In(zones[r.IntN(len(zones))])
		if _, change := at.ZoneBounds(); change.After(at) && r.IntN(2) == 0 {
			at = change.Add(time.Duration(r.Int64N(int64(4*time.Hour))) - 2*time.Hour) // where windows are odd
		}
		a := EachMinute + Alignment(r.IntN(4))
		from, to := a.calendarWindow(at)
		require.False(t, at.Before(from), "%v of %v begins at %v", a, at, from)
		require.True(t, at.Before(to), "%v of %v ends at %v", a, at, to)
		for _, inside := range []time.Time{from, from.Add(1), to.Add(-1)} {
			f, e := a.calendarWindow(inside)
			require.True(t, f.Equal(from) && e.Equal(to), "%v: %v is in %v to %v; %v is in %v to %v", a, at, from, to, inside, f, e)
		}
		f, _ := a.calendarWindow(to)
		require.True(t, f.Equal(to), "%v of %v ends at %v, the next begins at %v", a, at, to, f)
	}
}

func TestFixedWindow_resetsAtMidnightOfItsZone(t *testing.T) {
	tokyo := zone(t, "Asia/Tokyo")
	start := time.Date(2026, 5, 1, 23, 0, 0, 0, tokyo)
	l := WithClock(NewFixedWindow(FixedWindowConfig{Count: 2, Align: EachDay, Zone: tokyo}), &manualClock{start})
	playSteps(t, l, start, append(claimsOfOne(0, 2),
		step{at: 0, cost: 1, wait: time.Hour},
		step{at: time.Hour, cost: 1, ok: true, left: 1}))
	d := ask(l, 1, 0)
	require.Equal(t, "2 each day", d.Policy)
	require.Equal(t, 24*time.Hour, d.Per)
}
