package rules

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// testConfig is the Config that the golden files require.
var testConfig = Config{
	Clock: fixedClock(friday),
	CanBorrow: map[string]func(throttle.Claim, throttle.Decision) bool{
		"spare": func(throttle.Claim, throttle.Decision) bool { return false },
	},
}

// golden compares text with a file of testdata. With UPDATE_GOLDEN set it writes the file.
func golden(t *testing.T, file, text string) {
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile("testdata/"+file, []byte(text), 0o644))
	}
	want, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

// TestSet_stringPrintsEffectiveLimits prints a file with every word.
func TestSet_stringPrintsEffectiveLimits(t *testing.T) {
	set, err := Load("testdata/all.yaml", testConfig)
	require.NoError(t, err)
	golden(t, "all.txt", set.String())
}
