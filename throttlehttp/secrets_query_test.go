package throttlehttp_test

import (
	"strings"
	"testing"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// TestSecrets_searchLargeQueriesWithoutAllocating checks that parameters that a client
// adds to a query of 1 MB cost no memory.
func TestSecrets_searchLargeQueriesWithoutAllocating(t *testing.T) {
	find, r := new(throttlehttp.Secrets).Query("key"), requestFrom()
	for name, pair := range map[string]string{"escaped": "%61=1&", "almost": "k%65x=1&", "broken": "k%zz=1&"} {
		r.URL.RawQuery = "key=a&" + pair
		few := testing.AllocsPerRun(5, func() { find(r) })
		r.URL.RawQuery = "key=a&" + strings.Repeat(pair, 1<<20/len(pair))
		require.LessOrEqual(t, testing.AllocsPerRun(5, func() { find(r) }), few+20, name) // the race detector makes sync.Pool drop items
	}
}
