package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Covers the experiments that do not wait: our client does no harm, and the experiments
// detect the harm of others.
func TestExperiments_detectHarm(t *testing.T) {
	ours, theirs := result{}, result{}
	for _, e := range []func(trial){countDuplicates, countShortBodies} {
		e(trial{"heed", &ours})
		e(trial{"failsafe", &theirs})
	}
	require.Equal(t, result{}, ours)
	require.Equal(t, 4, theirs.Duplicates)
	require.Equal(t, 3, nestedSends("heed"))
	require.Equal(t, 27, nestedSends("failsafe"))
	require.Equal(t, 1, nestedSends("plain"))
}

func TestMeasure_unknownClient(t *testing.T) {
	_, err := measure([]string{"nobody"})
	require.ErrorContains(t, err, `no client "nobody"`)
}
