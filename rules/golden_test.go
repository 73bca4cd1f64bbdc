package rules

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// inProgram is what the golden files need of a program.
var inProgram = Setting{
	Clock: still(friday),
	Spare: map[string]func(throttle.Claim, throttle.Decision) bool{
		"spare": func(throttle.Claim, throttle.Decision) bool { return false },
	},
}

// golden compares text with a file of testdata. With UPDATE_GOLDEN set it writes it.
func golden(t *testing.T, file, text string) {
	if os.Getenv("UPDATE_GOLDEN") != "" {
		require.NoError(t, os.WriteFile("testdata/"+file, []byte(text), 0o644))
	}
	want, err := os.ReadFile("testdata/" + file)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

// TestString_printsTheEffectivePolicy prints a file with every word.
func TestString_printsTheEffectivePolicy(t *testing.T) {
	set, err := Load("testdata/all.yaml", inProgram)
	require.NoError(t, err)
	golden(t, "all.txt", set.String())
}
