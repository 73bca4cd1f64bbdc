package quota

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse_readsWhatWriteTells(t *testing.T) {
	want := Report{
		Limits: []Limit{{Limit: 100, Remaining: 42, HasLimit: true, HasRemaining: true,
			ResetAfter: 30 * time.Second, HasReset: true, ResetForm: DeltaSeconds}},
		RetryAfter: 3 * time.Second, HasRetryAfter: true, RetryForm: DeltaSeconds, Throttled: true,
	}
	h := http.Header{}
	Write(h, XRateLimit|XRetryAfter, want)
	require.Equal(t, want, Parse(429, h, time.Unix(0, 0)))
}
