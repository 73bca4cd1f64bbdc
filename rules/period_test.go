package rules

import (
	"math/rand/v2"
	"testing"
	"time"
	_ "time/tzdata" // the test must not depend on the zone files of the machine

	"github.com/stretchr/testify/require"
)

// clockChanges are zones and times of unusual clock changes.
var clockChanges = []struct {
	zone string
	near time.Time
}{
	{"Europe/Berlin", time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)},     // 02:00 becomes 03:00
	{"Europe/Berlin", time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC)},    // 03:00 becomes 02:00
	{"America/Sao_Paulo", time.Date(2018, 11, 4, 3, 0, 0, 0, time.UTC)}, // midnight becomes 01:00
	{"America/Havana", time.Date(2026, 11, 1, 5, 0, 0, 0, time.UTC)},    // 01:00 becomes midnight again
	{"Australia/Lord_Howe", time.Date(2026, 4, 4, 15, 0, 0, 0, time.UTC)},
	{"Pacific/Apia", time.Date(2011, 12, 30, 10, 0, 0, 0, time.UTC)}, // a day is skipped
	{"UTC", time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC)},
}

func loadZone(t *testing.T, name string) *time.Location {
	zone, err := time.LoadLocation(name)
	require.NoError(t, err)
	return zone
}

// TestPeriod_followsLocalTime compares nextChange with a scan of periodAt in steps of a quarter of
// an hour.
func TestPeriod_followsLocalTime(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 2))
	quarter := func() time.Duration { return time.Duration(rng.Int64N(96)) * 15 * time.Minute }
	for range 300 {
		place := clockChanges[rng.IntN(len(clockChanges))]
		l := &Limit{}
		for range 1 + rng.IntN(2) {
			l.Active = append(l.Active, Period{From: quarter(), To: quarter(), Days: Weekdays(1 + rng.IntN(127)), Zone: loadZone(t, place.zone)})
		}
		at := place.near.Add(-time.Duration(rng.Int64N(3*96)) * 15 * time.Minute)
		got := l.nextChange(at)
		if want := scanForChange(l, at); !want.Equal(got) {
			require.Equal(t, want, got, "%v in %s after %v", l.Active, place.zone, at)
		}
	}
}

// TestPeriod_findsThePeriodAfterASkippedOne checks that a clock change that skips the period of one week
// does not hide that of the week after it, which is two weeks away.
func TestPeriod_findsThePeriodAfterASkippedOne(t *testing.T) {
	zone := loadZone(t, "Europe/Berlin")
	l := &Limit{Active: []Period{{From: 2*time.Hour + 15*time.Minute, To: 2*time.Hour + 45*time.Minute, Days: 1 << time.Sunday, Zone: zone}}}
	got := l.nextChange(time.Date(2026, 3, 22, 2, 45, 0, 0, zone))
	require.Equal(t, time.Date(2026, 4, 5, 2, 15, 0, 0, zone).Format(time.RFC3339), got.In(zone).Format(time.RFC3339))
}

// scanForChange returns the first quarter of an hour after at at which another period applies.
func scanForChange(l *Limit, at time.Time) time.Time {
	now := l.periodAt(at)
	for range 14 * 96 {
		if at = at.Add(15 * time.Minute); l.periodAt(at) != now {
			return at
		}
	}
	return time.Time{}
}

// TestPeriod_skippedAndRepeatedHours checks which periods apply in Berlin around the clock changes
// of 2026.
func TestPeriod_skippedAndRepeatedHours(t *testing.T) {
	clock := func(h, m int) time.Duration { return time.Duration(h*60+m) * time.Minute }
	for name, tt := range map[string]struct {
		from, to time.Duration
		on       string   // beginning of the day, in UTC
		holds    []string // intervals, in UTC
	}{
		"begins in the skipped hour":   {clock(2, 30), clock(4, 0), "2026-03-29", []string{"01:00 to 02:00"}},
		"ends in the skipped hour":     {clock(1, 0), clock(2, 30), "2026-03-29", []string{"00:00 to 01:00"}},
		"lies in the skipped hour":     {clock(2, 15), clock(2, 45), "2026-03-29", nil},
		"around the skipped hour":      {clock(1, 0), clock(4, 0), "2026-03-29", []string{"00:00 to 02:00"}},
		"begins in the repeated hour":  {clock(2, 30), clock(4, 0), "2026-10-25", []string{"00:30 to 01:00", "01:30 to 03:00"}},
		"ends in the repeated hour":    {clock(1, 0), clock(2, 30), "2026-10-25", []string{"23:00 to 00:30", "01:00 to 01:30"}},
		"lies in the repeated hour":    {clock(2, 15), clock(2, 45), "2026-10-25", []string{"00:15 to 00:45", "01:15 to 01:45"}},
		"over midnight, on an odd day": {clock(22, 0), clock(6, 0), "2026-03-29", []string{"21:00 to 04:00", "20:00 to 04:00"}},
	} {
		day, err := time.Parse(time.DateOnly, tt.on)
		require.NoError(t, err)
		l := &Limit{Active: []Period{{From: tt.from, To: tt.to, Days: EveryDay, Zone: loadZone(t, "Europe/Berlin")}}}
		var holds []string
		for at := day.Add(-4 * time.Hour); ; { // no period has begun by then
			begin := at
			if l.periodAt(at) == nil {
				begin = l.nextChange(at)
			}
			end := l.nextChange(begin)
			if begin.After(day.Add(21 * time.Hour)) {
				break
			}
			holds = append(holds, begin.UTC().Format("15:04")+" to "+end.UTC().Format("15:04"))
			at = end
		}
		require.Equal(t, tt.holds, holds, name)
	}
}

func TestPeriod_daysAreStartDays(t *testing.T) {
	friday := Period{From: 22 * time.Hour, To: 6 * time.Hour, Days: 1 << time.Friday}
	for at, want := range map[string]bool{
		"2026-11-20T21:59:59Z": false, // a Friday
		"2026-11-20T22:00:00Z": true,
		"2026-11-21T05:59:59Z": true,
		"2026-11-21T06:00:00Z": false,
		"2026-11-20T05:00:00Z": false, // in the period of Thursday
		"2026-11-21T23:00:00Z": false, // in the period of Saturday
	} {
		instant, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		require.Equal(t, want, friday.contains(instant), at)
	}
}
