package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const tables = `noon: all clients wake at 12:00:00 and send 2 requests each.
2000 clients, 4000 calls; the server serves 200 per second, 20 at the same time.

                strategy    sent  rejected  first wave  later peak  half served  99 % served  all served  failed
               no jitter   27325     27068        4000        3946            -            -           -    3743
             full jitter   23954     19954        4457         565        9.9 s       34.9 s      41.2 s       0
                    heed   31484     27484        4000        2031       14.1 s       24.0 s      25.3 s       0

outage: all clients lose their connections at the same time, and the server is down for 60 s.
2000 clients, 4000 calls; the server serves 200 per second, 20 at the same time.

                strategy    sent  rejected  first wave  later peak  half served  99 % served  all served  failed
             full jitter   42640     38640        4460          42        9.9 s       29.5 s      37.0 s       0
                    heed   42555     40555        4460          75        9.9 s       27.2 s      29.6 s       0
`

func TestParse_readsTheTables(t *testing.T) {
	lines := parse([]byte(tables))
	require.Len(t, lines, 5)
	require.Equal(t, line{"noon", "no jitter", 27325, 3946, "-", 3743}, lines[0])
	require.Equal(t, line{"outage", "heed", 42555, 75, "29.6 s", 0}, lines[4])
	require.True(t, sendsMore(lines), "at noon")
	require.False(t, sendsMore(lines[3:]))
}
