package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The experiments that need no time: ours does no harm, and they tell who does.
func TestExperiments_tellWhoDoesHarm(t *testing.T) {
	ours, theirs := result{}, result{}
	for _, e := range []func(subject){doesTwice, sendsBodies} {
		e(subject{"heed", &ours})
		e(subject{"failsafe", &theirs})
	}
	require.Equal(t, result{}, ours)
	require.Equal(t, 4, theirs.Twice)
	require.Equal(t, 3, stacked("heed"))
	require.Equal(t, 27, stacked("failsafe"))
	require.Equal(t, 1, stacked("plain"))
}

func TestMeasure_saysWhatIsWrong(t *testing.T) {
	_, err := measure([]string{"nobody"})
	require.ErrorContains(t, err, `no client "nobody"`)
}
