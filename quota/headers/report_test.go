package headers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestReport_appendsRemoteLimits(t *testing.T) {
	r := Report{Limits: []Limit{
		{Name: "core", Limit: 5000, Remaining: 4872, HasLimit: true, HasRemaining: true, ResetAfter: time.Minute, HasReset: true, Window: time.Hour},
		{Unit: "tokens", Limit: 10, HasLimit: true},
		{Rate: 0.25},
		{Rate: 1e-300},
	}}
	require.Equal(t, []throttle.RemoteLimit{
		{Name: "core", Limit: 5000, Remaining: 4872, ResetAfter: time.Minute, Per: time.Hour},
		{Unit: "tokens", Limit: 10, RemainingUnknown: true},
		{Limit: 1, RemainingUnknown: true, Per: 4 * time.Second},
		{Limit: 1, RemainingUnknown: true, Per: MaxDelay},
	}, r.AppendRemoteLimits(nil))
}

func TestTimeFormat_isDelta(t *testing.T) {
	for f, isDelta := range map[TimeFormat]bool{
		FormatNone: false, FormatDeltaSeconds: true, FormatDeltaMillis: true, FormatDuration: true, FormatEpochSeconds: false, FormatEpochMillis: false, FormatDate: false,
	} {
		require.Equal(t, isDelta, f.IsDelta(), f.String())
	}
	require.Equal(t, "unknown format", TimeFormat(99).String())
}
