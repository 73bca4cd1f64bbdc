package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

func quotaAt(t *testing.T, random float64) *quota {
	tr := &Tracker{Rand: func() float64 { return random }}
	return tr.endpointOf(request(t, users)).unknown.Load()
}

// A host is unlimited when slow start is over, and it has shown no limit.
func TestQuota_whichHostIsUnlimited(t *testing.T) {
	for name, limit := range map[string]func(*quota){
		"none":     func(*quota) {},
		"evidence": func(q *quota) { q.Inference = &model.Inference{Window: learnedlimit.NewDeclaredWindow(1e6, time.Hour)} }, // not forgotten
		"a limit":  func(q *quota) { q.Estimates = []statedlimit.Estimate{{Limit: 1e6, Remaining: 1e6}} },
		"a hold":   func(q *quota) { q.Hold.LastSent = 1 },
		"a quota":  func(q *quota) { q.endpoint.hasQuotas.Store(true) },
	} {
		q := quotaAt(t, 0)
		limit(q)
		for i := range int64(concurrency.KnownAfter) {
			require.False(t, q.endpoint.unlimited.Load(), name)
			q.Observe(t.Context(), throttle.Claim{}, throttle.Decision{OK: true, Grant: q.InFlight.Add()}, throttle.Feedback{Now: time.Unix(1000, 0)})
			require.EqualValues(t, i+1, q.Span.N)
		}
		require.Equal(t, name == "none", q.endpoint.unlimited.Load(), name)
	}
}
