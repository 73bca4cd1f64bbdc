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
	} {
		require.Equal(t, tt.want, Wait(1234*time.Millisecond, tt.name, tt.ahead))
	}
}

func TestDuration_hasAtMostTwoUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
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

func TestError_hasNoSecrets(t *testing.T) {
	for text, want := range map[string]string{
		`plain`: `plain`,
		`Get "https://user:secret@api.test/path?key=secret#secret": refused`: `Get "https://api.test/path": refused`,
		`Get https://api.test/?key=secret: refused`:                          `Get https://api.test/: refused`,
		`proxy http://u:secret@proxy, then http://secret@b/c?d=secret`:       `proxy http://proxy, then http://b/c`,
		"two\nlines\x00": "two lines ",
		"a://":           "a://",
	} {
		require.Equal(t, want, Error(errors.New(text)))
	}
	require.Len(t, Error(errors.New(strings.Repeat("x", 5000))), maxError+3)
}
