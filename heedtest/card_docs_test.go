package heedtest

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/heed-go/heed/internal/scorecard"
	"github.com/stretchr/testify/require"
)

// TestChecks_areDocumented checks that docs/testing.md and bench/CARDS.md list the checks with
// their limits, in the order in which they run.
func TestChecks_areDocumented(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	require.NoError(t, err)
	cards, err := os.ReadFile("../bench/CARDS.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "| check | fails if | figure, limit |\n|---|---|---|\n")
	require.True(t, found)
	rows := strings.Split(table, "\n")
	for i, c := range checks {
		cells := strings.Split(rows[i], " | ")
		require.Len(t, cells, 3, rows[i])
		require.Equal(t, "| `"+c.name+"`", cells[0])
		require.True(t, strings.HasSuffix(cells[2], ", "+scorecard.Number(c.limit)+" |"), rows[i])
		require.Contains(t, string(cards), fmt.Sprintf("| %s | %s %s |", c.name, scorecard.Number(c.limit), c.unit))
	}
	require.Empty(t, rows[len(checks)], "there is no further row")
}
