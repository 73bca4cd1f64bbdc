package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/scorecard"
)

func TestMeasure_heedHasFullMarks(t *testing.T) {
	chosen, err := choose([]string{"heed", "net/http"})
	require.NoError(t, err)
	cards := measure(t, chosen)
	require.Empty(t, cards[0].Failed())
	require.Len(t, cards[1].Failed(), 1)

	file := filepath.Join(t.TempDir(), "CARDS.md")
	require.NoError(t, write(chosen, cards, false, file))
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, want := range []string{
		"| check | limit | heed | net/http |\n",
		"| dialects | 0 rejected | 0 | **20** |\n",
		"| early-retry | 0 s too early | 0 | n/a |\n",
		"| failed | | 0 | 1 |\n",
		"**heed**\n\nFull marks.\n",
	} {
		require.Contains(t, string(page), want)
	}
}

// TestClients_adaptersKeepTheContract checks clients that are adapted here: the faults on
// their cards must be their own.
func TestClients_adaptersKeepTheContract(t *testing.T) {
	for _, c := range all {
		card := scorecard.Run(t, c.build, "contract", "retry-bound")
		for _, m := range card {
			require.NotContains(t, m.Detail, "panicked", c.name)
			require.NotContains(t, m.Detail, "neither", c.name)
		}
		if strings.HasPrefix(c.name, "resty") || strings.HasPrefix(c.name, "loop") {
			require.Empty(t, card.Failed(), c.name)
		}
	}
}

func TestChoose_unknownClient(t *testing.T) {
	_, err := choose([]string{"heed", "none"})
	require.ErrorContains(t, err, `no client "none": take one of heed; net/http; `)
}

func TestCell(t *testing.T) {
	for want, m := range map[string]scorecard.Mark{
		"n/a":        {Result: scorecard.NotApplicable},
		"**failed**": {Result: scorecard.Failed},
		"**1.5**":    {Result: scorecard.Failed, Figure: 1.5, Limit: 1},
		"0.25":       {Result: scorecard.Passed, Figure: 0.25, Limit: 1},
	} {
		require.Equal(t, want, cell(m))
	}
}
