package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestLimit_AsWindowSaysTheSame(t *testing.T) {
	r := Report{Limits: []Limit{
		{Name: "core", Limit: 5000, Remaining: 4872, HasLimit: true, HasRemaining: true, ResetAfter: time.Minute, HasReset: true, Window: time.Hour},
		{Unit: "tokens", Limit: 10, HasLimit: true},
		{Rate: 0.25},
		{Rate: 1e-300},
	}}
	require.Equal(t, []throttle.Window{
		{Name: "core", Limit: 5000, Remaining: 4872, ResetAfter: time.Minute, Per: time.Hour},
		{Unit: "tokens", Limit: 10, RemainingUnknown: true},
		{Limit: 1, RemainingUnknown: true, Per: 4 * time.Second},
		{Limit: 1, RemainingUnknown: true, Per: maxDelay},
	}, r.AppendWindows(nil))
}

func TestForm_tellsWhoseClockCounts(t *testing.T) {
	for f, relative := range map[Form]bool{
		NoForm: false, DeltaSeconds: true, DeltaMillis: true, Duration: true, EpochSeconds: false, EpochMillis: false, Date: false,
	} {
		require.Equal(t, relative, f.Relative(), f.String())
	}
	require.Equal(t, "unknown form", Form(99).String())
}
