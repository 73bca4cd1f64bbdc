package quota

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReader_marksStaleResponses(t *testing.T) {
	for age, stale := range map[string]bool{"": false, "0": false, "1": true, "3600": true} {
		h := http.Header{"X-Ratelimit-Limit": {"60"}, "X-Ratelimit-Remaining": {"59"}, "X-Ratelimit-Reset": {"60"}}
		if age != "" {
			h.Set("Age", age)
		}
		report := new(Reader).Parse("api.example.com", http.StatusOK, h, time.Unix(1_700_000_000, 0))
		require.Equal(t, stale, report.Stale, "Age: %q", age)
		require.Equal(t, stale, len(report.Limits) == 0, "Age: %q", age)
	}
}
