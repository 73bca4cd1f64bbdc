package throttleredis

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// More hashes than one script reads, some with more fields than one part has, are fetched to the
// last field.
func TestLink_fetchesAllFields(t *testing.T) {
	c := client(t)
	l := link{client: c, channel: "{" + newTestStore(t).Prefix + ":test}", timeout: 10 * time.Second, onOperation: func(string, time.Duration, error) {}}
	want, got := map[string]string{}, map[string]string{}
	var names []string
	for i := range 2*maxFetched + 3 {
		names = append(names, fmt.Sprint("hash", i))
		var fields []any
		for j := range 1 + i%3*700 {
			want[fmt.Sprint(names[i], " ", j)] = fmt.Sprint("value ", j)
			fields = append(fields, j, fmt.Sprint("1 value ", j))
		}
		require.NoError(t, c.HSet(t.Context(), l.key(names[i]), fields...).Err())
	}
	require.NoError(t, l.fetch(t.Context(), append(names, "missing"), func(name string, fields []storedField) {
		for _, f := range fields {
			got[name+" "+f.name] = f.value
			require.Greater(t, f.age, time.Hour)
		}
	}))
	require.True(t, maps.Equal(want, got), "%d of %d", len(got), len(want))
}
