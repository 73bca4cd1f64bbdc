package throttle

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFixedWindow_recoversWhenTheClockIsSetBack(t *testing.T) {
	for name, q := range map[string]FixedWindowConfig{
		"epoch": {Count: 2, Per: time.Minute},
		"first": {Count: 2, Per: time.Minute, Align: AtFirst},
		"hour":  {Count: 2, Align: EachHour},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := NewFixedWindow(q, nil)
			ask := func(ahead time.Duration) Decision {
				d, err := l.Reserve(t.Context(), Claim{Now: time.Now().Add(ahead)})
				require.NoError(t, err)
				return d
			}
			require.True(t, ask(48*time.Hour).OK, name)
			require.True(t, ask(48*time.Hour).OK, name)
			require.False(t, ask(0).OK, "%s: an older reading counts as the newest", name)
			time.Sleep(time.Hour) // a whole window
			require.True(t, ask(0).OK, name)
			require.True(t, ask(0).OK, name)
			d := ask(0)
			require.False(t, d.OK, name)
			require.LessOrEqual(t, d.Wait, time.Hour, name)
		})
	}
}
