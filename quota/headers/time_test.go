package headers

import (
	"math"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParseDate_readsFormatsInUse(t *testing.T) {
	received := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for s, want := range map[string]string{
		"Sun, 06 Nov 1994 08:49:37 GMT":                                      "1994-11-06T08:49:37Z",
		"Sunday, 06-Nov-94 08:49:37 GMT":                                     "1994-11-06T08:49:37Z",
		"Sun Nov  6 08:49:37 1994":                                           "1994-11-06T08:49:37Z",
		"sat, 07 may 2022 13:10:40 UTC":                                      "2022-05-07T13:10:40Z",
		"Fri, 25 Sep 2020  00:34:18 GMT":                                     "2020-09-25T00:34:18Z",
		"Fri, 14 Feb 2019 20:14:19 GMT":                                      "2019-02-14T20:14:19Z", // a Thursday
		"Monday, 01-Jan-40 00:00:00 GMT":                                     "2040-01-01T00:00:00Z",
		"Monday, 01-Jan-80 00:00:00 GMT":                                     "1980-01-01T00:00:00Z",
		"2018-07-20T10:08:27.9891144Z":                                       "2018-07-20T10:08:27.9891144Z",
		"2026-05-18T10:00Z":                                                  "2026-05-18T10:00:00Z",
		"2021-02-16 09:02:42":                                                "2021-02-16T09:02:42Z",
		"2025-07-08 15:35:40 -0700":                                          "2025-07-08T22:35:40Z",
		"2020-02-27T00:00:00+00:00":                                          "2020-02-27T00:00:00Z",
		"2021-02-16 09:02:42 +0530 IST":                                      "",
		"2023-11-14 22:13:20 +0000 UTC":                                      "2023-11-14T22:13:20Z",
		"Tue Feb 16 2021 09:02:42 GMT+0100 (Central European Standard Time)": "2021-02-16T08:02:42Z",
		"2026-13-01T00:00:00Z":                                               "", "2026-11-21": "", "Tue": "", "": "", "-3": "", "1.5": "", "1000abc": "",
		"2026-11-21T25:61:00Z": "", "21 Nov 2026 8:5:1 GMT": "", "Wed, 21 Oct 2015 07:28:00 EST": "",
	} {
		got, ok := parseDate(s, received)
		if want == "" {
			require.False(t, ok, "%q is %v", s, got)
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, want)
		require.NoError(t, err)
		require.True(t, ok, "%q", s)
		require.True(t, got.Equal(at), "%q is %v", s, got)
	}
}

// TestParseDate_boundsEachPart checks the first and the last valid value of each part.
func TestParseDate_boundsEachPart(t *testing.T) {
	received := time.Date(2023, 11, 14, 0, 0, 0, 0, time.UTC)
	for s, want := range map[string]string{
		"2023-01-01T00:00:00Z": "2023-01-01T00:00:00Z", "2023-00-01T00:00:00Z": "", "2023-12-31T00:00:00Z": "2023-12-31T00:00:00Z", "2023-13-01T00:00:00Z": "",
		"2023-11-00T00:00:00Z": "", "2023-11-31T00:00:00Z": "2023-12-01T00:00:00Z", "2023-11-32T00:00:00Z": "",
		"2023-11-14T24:00:00Z": "2023-11-15T00:00:00Z", "2023-11-14T25:00:00Z": "",
		"2023-11-14T22:59:60Z": "2023-11-14T23:00:00Z", "2023-11-14T22:60:00Z": "", "2023-11-14T22:59:61Z": "",
		"2023-11-14t22:13:20z": "2023-11-14T22:13:20Z", "2023-11-14T": "", "2023-11-14Tx": "", "2023-11-14x22:13:20": "", "2023-11 22:13:20": "",
		"2023-11-14 22:13:20.5": "2023-11-14T22:13:20.5Z", "2023-11-14 22:13:20.": "", "2023-11-14 22:13:20.x": "", "2023-11-14 22:13:20.1234567891": "2023-11-14T22:13:20.123456789Z",
		"2023-11-14 22:13:2": "", "2023-11-14 22:1:20": "", "2023-11-14 2:13:20": "2023-11-14T02:13:20Z",
		"2023-11-14 22:13:20 +23:59": "2023-11-13T22:14:20Z", "2023-11-14 22:13:20 +24:00": "", "2023-11-14 22:13:20 +01:60": "", "2023-11-14 22:13:20 -0060": "",
		"2023-11-14 22:13:20 +01": "2023-11-14T21:13:20Z", "2023-11-14 22:13:20 -0130": "2023-11-14T23:43:20Z", "2023-11-14 22:13:20 +1": "",
		"2023-11-14 22:13:20 +001": "", "2023-11-14 22:13:20 +01:5": "", "2023-11-14 22:13:20 +01:30": "2023-11-14T20:43:20Z", "2023-11-14 22:13:20 +1:30": "", "2023-11-14 22:13:20 +": "",
		"2023-11-14 22:13:20 UT": "2023-11-14T22:13:20Z", "2023-11-14 22:13:20 UX": "", "2023-11-14 22:13:20 (": "2023-11-14T22:13:20Z", "2023-11-14 22:13:20 X": "",
		"14 Nov 2023 22:13:20": "2023-11-14T22:13:20Z", "014 Nov 2023 22:13:20": "", "14 Nov 023 22:13:20": "", "14 15 Nov 2023 22:13:20": "", "14 Nov 2023 2024 22:13:20": "",
		"Nov 2023-14 22:13:20": "2023-11-14T22:13:20Z", "14 Nov 2023 22:13:20 10:11:12": "", "14 Nov 02023 22:13:20": "", "14 2023 22:13:20": "", "Nov 2023 22:13:20": "",
		"14 Nov 2023": "", "14 Nov 22:13:20": "", "14 Nop 2023 22:13:20": "", "14 November 2023 22:13:20": "2023-11-14T22:13:20Z", "Wednesday 14 Nov 2023 22:13:20": "2023-11-14T22:13:20Z",
		"14-Nov-73 22:13:20": "2073-11-14T22:13:20Z", "14-Nov-74 22:13:20": "1974-11-14T22:13:20Z", "14-Nov-00 22:13:20": "2000-11-14T22:13:20Z",
		"-14 Nov 2023 22:13:20": "2023-11-14T22:13:20Z", "+14 Nov 2023 22:13:20": "", "0000000014 Nov 2023 22:13:20": "", "14 Nov 2023 22:13:20 0000000001": "",
	} {
		got, ok := parseDate(s, received)
		require.Equal(t, want != "", ok, "%q is %v", s, got)
		if ok {
			require.Equal(t, want, got.Format(time.RFC3339Nano), "%q", s)
		}
	}
}

// TestParseDate_checksEachByte checks dates in the usual format with one byte replaced.
func TestParseDate_checksEachByte(t *testing.T) {
	const date = "Tue, 14 Nov 2023 22:13:20 GMT"
	received := time.Date(2023, 11, 14, 0, 0, 0, 0, time.UTC)
	for i := 3; i < len(date); i++ { // the weekday does not count
		_, ok := parseDate(date[:i]+"?"+date[i+1:], received)
		require.False(t, ok, "at %d", i)
	}
	for i, want := range map[int]string{5: "2023-11-24T22:13:20Z", 12: "3023-11-14T22:13:20Z", 14: "2033-11-14T22:13:20Z", 18: "2023-11-14T23:13:20Z", 20: "2023-11-14T22:23:20Z", 23: "2023-11-14T22:13:30Z"} {
		got, ok := parseDate(date[:i]+string(date[i]+1)+date[i+1:], received)
		require.True(t, ok)
		require.Equal(t, want, got.Format(time.RFC3339))
	}
}

func TestParseDate_agreesWithNetHTTP(t *testing.T) {
	at := time.Date(1999, 12, 31, 23, 59, 59, 0, time.UTC)
	for range 800 {
		at = at.Add(31*day + 3*time.Hour + 7*time.Minute + 11*time.Second)
		for _, layout := range []string{http.TimeFormat, time.ANSIC, time.RFC3339} {
			got, ok := parseDate(at.Format(layout), at)
			require.True(t, ok)
			require.True(t, got.Equal(at), "%s: %v", at.Format(layout), got)
		}
	}
}

func TestParseDuration_readsFormatsInUse(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"6ms": 6 * time.Millisecond, "8.64s": 8640 * time.Millisecond, "1m6.779s": 66779 * time.Millisecond, "0s": 0,
		"17.399999999s": 17399999999, "1h0m0s": time.Hour, "10s": 10 * time.Second, "1d": day, "10 seconds": 10 * time.Second,
		"1 minute 30 seconds": 90 * time.Second, "734.512ms": 734512 * time.Microsecond, "500µs": 500 * time.Microsecond,
		"57.238747106s": 57238747106, "0.0000000001s": 1, "999999999999999h": math.MaxInt64, "1w": 7 * day,
	} {
		got, ok := parseDuration(s)
		require.True(t, ok, s)
		require.Equal(t, want, got, s)
	}
	for s, want := range map[string]time.Duration{
		"00:01:30": 90 * time.Second, "99:59:59": 99*time.Hour + 59*time.Minute + 59*time.Second, "1ns": 1, "2us": 2000, "2μs": 2000, "2 millis": 2 * time.Millisecond,
		"2mins3secs": 123 * time.Second, "1D 2H": 26 * time.Hour, "1.5w": 252 * time.Hour, " 1s ": time.Second,
		"5.03:23:11": 123*time.Hour + 23*time.Minute + 11*time.Second,
	} {
		got, ok := parseDuration(s)
		require.True(t, ok, s)
		require.Equal(t, want, got, s)
	}
	for _, s := range []string{"00:01x30", "00x01:30", "0x:01:30", "00:0x:30", "00:01:3", "1\x7fs", "1s\x80", "1sé", "1 fortnight", "", "s", "1", "-1s", "1x", "1s2", "1..5s", ".5s", "1e3s", "00:01:30.", ".00:01:30", "1.2.00:01:30"} {
		_, ok := parseDuration(s)
		require.False(t, ok, s)
	}
}

// TestParseDate_agreesWithTimeDate compares the seconds of random dates with those of
// time.Date, days after the end of the month included.
func TestParseDate_agreesWithTimeDate(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		d := dateParser{year: random.IntN(10_000), month: random.IntN(12), day: 1 + random.IntN(31),
			hour: random.IntN(25), minute: random.IntN(60), sec: random.IntN(61)}
		want := time.Date(d.year, time.Month(d.month+1), d.day, d.hour, d.minute, d.sec, 0, time.UTC).Unix()
		require.Equal(t, want, d.unix(), "%+v", d)
	}
	for _, d := range []dateParser{{year: 999_999_999, month: 11, day: 31}, {year: 0, day: 1}, {year: -5, month: 1, day: 29}, {year: 2000, month: 1, day: 29}} {
		require.Equal(t, time.Date(d.year, time.Month(d.month+1), d.day, 0, 0, 0, 0, time.UTC).Unix(), d.unix(), "%+v", d)
	}
}
