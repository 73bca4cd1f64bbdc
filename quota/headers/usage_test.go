package headers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A header with an ambiguous name states a limit if its value is one in form: a share alone, or
// pairs with an equals sign and a share.
func TestIsUsageValue(t *testing.T) {
	tests := map[string]bool{
		"2/40": true, " 2/40 ": true, "api-usage=135/5000": true,
		"": false, "40": false, "/40": false, "a/40": false, "2/b": false, "a/b": false, "2/40x": false, "2x/40": false,
		"text/html": false, "api-usage=135": false,
	}
	for value, want := range tests {
		require.Equal(t, want, isUsageValue(&nameInfo{kind: KindLimit}, []string{value}), "%q", value)
		require.False(t, isUsageValue(&nameInfo{kind: KindRemaining}, []string{value}), "%q", value)
	}
}
