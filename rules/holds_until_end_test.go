package rules

import (
	"testing"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// TestActiveLimit_holdsUntilEnd checks that every form of a concurrency limit holds units until
// the end, and that other limits do not.
func TestActiveLimit_holdsUntilEnd(t *testing.T) {
	for words, holds := range map[string]bool{
		"rate_limit: {concurrency: 10}":                                             true,
		"rate_limit: {unit: second, requests_per_unit: 10}":                         false,
		"rate_limit: {unit: second, requests_per_unit: 10, algorithm: sliding_log}": false,
	} {
		g := activeLimitFunc(t, words)(nil)
		_, err := g.Reserve(t.Context(), throttle.Claim{Key: "k"})
		require.NoError(t, err)
		require.Equal(t, holds, !g.Traits().EndsAtResponse, words)
	}
}
