package throttleredis

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A rejection reads and writes a part of what is stored, however many rejections cause a ban.
func TestBan_aRejectionDoesNotReadAllOthers(t *testing.T) {
	c := dial(t, redistest.Start(t).Addr)
	s := &Store{Client: c}
	l := s.Ban(keyed.BanConfig{Rejections: 1000, Within: time.Hour, Duration: time.Hour}, s.TokenBucket(throttle.PerHour(1)))
	require.True(t, take(t, l, "a").OK)
	for i := range 998 {
		require.False(t, take(t, l, "a").OK, "rejection %d", i)
	}
	require.NoError(t, c.ConfigResetStat(t.Context()).Err())
	require.NotEqual(t, "ban", take(t, l, "a").Policy)
	stats, err := c.InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	calls := regexp.MustCompile(`calls=(\d+)`)
	for command, want := range map[string]string{"get": "1", "getrange": "1", "setrange": "2", "pexpire": "1"} {
		require.Equal(t, want, calls.FindStringSubmatch(stats["Commandstats"]["cmdstat_"+command])[1], command)
	}
	require.NotContains(t, stats["Commandstats"], "cmdstat_set")
	require.Equal(t, "ban", take(t, l, "a").Policy)
}
