package throttle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// Each cause has a name of its own.
func TestCause_hasAName(t *testing.T) {
	require.Equal(t, "unknown", throttle.CauseUnknown.String())
	require.Equal(t, "retry now", throttle.CauseRetryNow.String())
	require.Equal(t, "other quota", (throttle.CauseCanceled + 1).String(), "of package quota")
	require.Equal(t, "cause 9", (throttle.CauseCanceled + 2).String())
	require.Equal(t, "cause 255", throttle.Cause(255).String())
	names := map[string]bool{}
	for c := throttle.CauseUnknown; c <= throttle.CauseCanceled+1; c++ {
		require.NotEmpty(t, c.String())
		require.False(t, names[c.String()], "%s", c)
		names[c.String()] = true
	}
}
