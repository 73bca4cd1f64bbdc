package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/statedlimit"
)

// Clients that are not alone spread their probes over a second.
func TestQuota_spreadsProbesOfClients(t *testing.T) {
	q := modelAt(0)
	q.estimates = make([]statedlimit.Estimate, 2)
	require.Zero(t, q.spreadOfClients())
	q.estimates[1] = sharedEstimate(time.Unix(1_700_000_000, 0))
	require.Equal(t, time.Second, q.spreadOfClients())
}
