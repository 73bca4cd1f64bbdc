package explain

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWait_describesTheLimit(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ahead int
		want  string
	}{
		{"api.github.com/search: retry-after", 3, "waited 1.2 s for quota api.github.com/search (retry-after), 3 ahead"},
		{"api.test:8443: quota", 0, "waited 1.2 s for quota api.test:8443"},
		{"api.test: quota of tokens", 1, "waited 1.2 s for quota api.test (tokens), 1 ahead"},
		{"api.test: slow start", 0, "waited 1.2 s for quota api.test (slow start)"},
		{"own", 2, "waited 1.2 s for limit own, 2 ahead"},
		{"team: search", 0, "waited 1.2 s for limit team: search"},
		{"", 0, "waited 1.2 s for a limit"},
		{"own", 1, "waited 1.2 s for limit own, 1 ahead"},
		{"own", -1, "waited 1.2 s for limit own"},
	} {
		require.Equal(t, tt.want, Wait(1234*time.Millisecond, tt.name, tt.ahead))
	}
}

func TestSplitLimit_knowsTheReasonsOfQuotas(t *testing.T) {
	for _, tt := range []struct{ name, limit, reason, text string }{
		{"api.test: quota", "api.test", "quota", "quota api.test"},
		{"api.test: retry-after", "api.test", "retry-after", "quota api.test (retry-after)"},
		{"api.test: learned rate", "api.test", "learned rate", "quota api.test (learned rate)"},
		{"api.test: slow start", "api.test", "slow start", "quota api.test (slow start)"},
		{"api.test: overload", "api.test", "overload", "quota api.test (overload)"},
		{"api.test: quota of points", "api.test", "quota of points", "quota api.test (points)"},
		{"a: b: quota", "a: b", "quota", "quota a: b"},
		{": quota", "", "quota", "quota "},
		{"api.test:quota", "api.test:quota", "", "limit api.test:quota"},
		{"team: search", "team: search", "", "limit team: search"},
		{"quota", "quota", "", "limit quota"},
		{"", "", "", "a limit"},
	} {
		limit, reason := SplitLimit(tt.name)
		require.Equal(t, []string{tt.limit, tt.reason}, []string{limit, reason}, tt.name)
		require.Equal(t, tt.text, Limit(tt.name), tt.name)
	}
}

func TestDuration_hasAtMostTwoUnits(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for d, want := range map[time.Duration]string{
		1:                            "0 ms",
		9940 * time.Microsecond:      "9.9 ms",
		10 * ms:                      "10 ms",
		10_400 * time.Microsecond:    "10 ms",
		10_500 * time.Microsecond:    "11 ms",
		999_400 * time.Microsecond:   "999 ms",
		999_500 * time.Microsecond:   "1 s",
		s:                            "1 s",
		59_949 * ms:                  "59.9 s",
		59_950 * ms:                  "1 min",
		60 * s:                       "1 min",
		61 * s:                       "1 min 1 s",
		3599_499 * ms:                "59 min 59 s",
		3599_500 * ms:                "1 h",
		time.Hour:                    "1 h",
		24*time.Hour - 31*s:          "23 h 59 min",
		24*time.Hour - 30*s:          "1 d",
		24 * time.Hour:               "1 d",
		25 * time.Hour:               "1 d 1 h",
		400 * 24 * time.Hour:         "400 d",
		0:                            "0 s",
		400 * time.Microsecond:       "0.4 ms",
		9999 * time.Microsecond:      "10 ms",
		850 * time.Millisecond:       "850 ms",
		999_600 * time.Microsecond:   "1 s",
		1234 * time.Millisecond:      "1.2 s",
		30 * time.Second:             "30 s",
		59_990 * time.Millisecond:    "1 min",
		125 * time.Second:            "2 min 5 s",
		3599_900 * time.Millisecond:  "1 h",
		90 * time.Minute:             "1 h 30 min",
		36 * time.Hour:               "1 d 12 h",
		-2 * time.Second:             "-2 s",
		time.Duration(math.MinInt64): "-106751 d 23 h",
	} {
		require.Equal(t, want, Duration(d), "%d", d)
	}
}

func TestDurationUp_isNeverShorter(t *testing.T) {
	for d, want := range map[time.Duration]string{
		8_570_194_005:                "8.6 s",
		8_500_000_001:                "8.6 s",
		8_500_000_000:                "8.5 s",
		1:                            "0.1 ms",
		9_900_001:                    "10 ms",
		10_000_001:                   "11 ms",
		999_000_001:                  "1 s",
		59_900_000_001:               "1 min",
		time.Minute + 1:              "1 min 1 s",
		time.Hour + 1:                "1 h 1 min",
		24*time.Hour + 1:             "1 d 1 h",
		24*time.Hour - 1:             "1 d",
		0:                            "0 s",
		-1500 * time.Millisecond:     "-1.5 s",
		time.Duration(math.MaxInt64): "106751 d 23 h",
	} {
		require.Equal(t, want, DurationUp(d), "%d", d)
	}
}

func TestError_hasNoSecrets(t *testing.T) {
	for text, want := range map[string]string{
		`plain`: `plain`,
		`Get "https://user:secret@api.test/path?key=secret#secret": rejected`: `Get "https://api.test/path": rejected`,
		`Get https://api.test/?key=secret: rejected`:                          `Get https://api.test/: rejected`,
		`proxy http://u:secret@proxy, then http://secret@b/c?d=secret`:        `proxy http://proxy, then http://b/c`,
		"two\nlines\x00":        "two lines ",
		"a://":                  "a://",
		"a:// b?c":              "a:// b?c",
		"://u:secret@h/?secret": "://h/",
		"who? #1 no@mail":       "who? #1 no@mail",
		"a://?secret":           "a://",
		"a://#secret":           "a://",
		"a://secret@":           "a://",
		"a://@b":                "a://b",
		"a://u:s@t@b/":          "a://b/",
		"file:///d/u@h":         "file:///d/u@h",
		"at a://b/: no":         "at a://b/: no",
		"'a://u@b/?c': n":       "'a://b/': n",
		"a\x1f~\x7f\u00a0":      "a ~ \u00a0",
		"\xff":                  "\ufffd",
	} {
		require.Equal(t, want, Error(errors.New(text)), text)
	}
	require.Len(t, Error(errors.New(strings.Repeat("x", 5000))), maxError+3)
}

func TestRoundDurations_writesThemAsOtherTexts(t *testing.T) {
	for text, want := range map[string]string{
		"rejected: ask again in 499.396837ms":   "rejected: ask again in 499 ms",
		"1.234567s, then (1m0.5s): 12.3456µs":   "1.2 s, then (1 min 1 s): 0 ms",
		"2h3m4.5s":                              "2 h 3 min",
		"RetryPolicy.MaxElapsed is 1m0s":        "RetryPolicy.MaxElapsed is 1 min",
		"99999999h0.5s":                         "99999999h0.5s",
		"v1.5s of https://a.test/1.25s, 1.5sec": "v1.5s of https://a.test/1.25s, 1.5sec",
	} {
		require.Equal(t, want, RoundDurations(text))
	}
}

func TestError_isCutAfter1000Bytes(t *testing.T) {
	x := strings.Repeat("x", 1000)
	require.Equal(t, x, Error(errors.New(x)))
	require.Equal(t, x+"...", Error(errors.New(x+"x")))
	require.Equal(t, x[1:]+"...", Error(errors.New(x[1:]+"é")), "no part of a character remains")
}
