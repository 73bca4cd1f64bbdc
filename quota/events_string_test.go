package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestEvents_stringsAreSentences(t *testing.T) {
	for want, event := range map[string]interface{ String() string }{
		"quota api.test (retry-after) is held for 30 s":                      HoldInfo{Limit: "api.test: retry-after", Held: true, For: 30 * time.Second},
		"quota api.test (learned rate) is not held any more":                 HoldInfo{Limit: "api.test: learned rate"},
		"quota api.test: stated limit default of 100 per 1 min":              LimitLearnedInfo{Limit: "api.test: quota", Name: "default", Size: 100, Per: time.Minute},
		"quota api.test: changed stated limit of 50":                         LimitLearnedInfo{Limit: "api.test: quota", Change: Changed, Size: 50},
		"quota api.test: dropped stated limit default":                       LimitLearnedInfo{Limit: "api.test: quota", Change: Dropped, Name: "default", Size: 50},
		"quota api.test (learned rate): learned limit of 8.33 per second":    LimitLearnedInfo{Limit: "api.test: learned rate", Rate: 25.0 / 3},
		"quota api.test (learned rate): changed learned limit of 10 per 5 s": LimitLearnedInfo{Limit: "api.test: learned rate", Change: Changed, Size: 10, Per: 5 * time.Second},
		"quota api.test (learned rate): dropped learned limit":               LimitLearnedInfo{Limit: "api.test: learned rate", Change: Dropped, Rate: 2},
	} {
		require.Equal(t, want, event.String())
	}
}
