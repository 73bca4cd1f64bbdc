package worlds

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// begin is the time of the first request in these tests.
const begin = 500*24*time.Hour + 1234*time.Millisecond

func TestMeters_acceptAtNextAndNotBefore(t *testing.T) {
	for name, m := range map[string]func() meter{
		"aligned window":   func() meter { return &fixedWindow{limit: 7, length: 10 * time.Second, aligned: true} },
		"window":           func() meter { return &fixedWindow{limit: 7, length: 10 * time.Second} },
		"sliding log":      func() meter { return &slidingLog{limit: 7, length: 10 * time.Second} },
		"sliding counter":  func() meter { return &slidingCounter{limit: 7, length: 10 * time.Second} },
		"counter of one":   func() meter { return &slidingCounter{limit: 1, length: 3 * time.Second} },
		"bucket":           func() meter { return &bucket{interval: time.Second, burst: 4} },
		"bucket without":   func() meter { return &bucket{interval: time.Second, burst: 1} },
		"window, rejected": func() meter { return &fixedWindow{limit: 2, length: time.Second} },
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			meter, now := m(), time.Duration(begin)
			for range 2000 {
				now += time.Duration(random.ExpFloat64() * float64(400*time.Millisecond))
				next := meter.next(now)
				require.GreaterOrEqual(t, next, now)
				require.Equal(t, next == now, meter.free(now))
				if next > now {
					if before := next - 10*time.Microsecond; before > now {
						require.False(t, meter.free(before), "%v before", next-before)
					}
					now = next
					require.True(t, meter.free(now))
				}
				if remaining, reset := meter.state(now); remaining == 0 {
					require.GreaterOrEqual(t, reset, now)
				}
				meter.count(now)
			}
		})
	}
}

func TestMeters_acceptTheLimit(t *testing.T) {
	for name, tt := range map[string]struct {
		meter    meter
		accepted int // of requests every 10 ms for 100 s
	}{
		"aligned window":  {&fixedWindow{limit: 5, length: 10 * time.Second, aligned: true}, 55}, // a part of a window at each end
		"window":          {&fixedWindow{limit: 5, length: 10 * time.Second}, 50},
		"sliding log":     {&slidingLog{limit: 5, length: 10 * time.Second}, 50},
		"bucket":          {&bucket{interval: 2 * time.Second, burst: 5}, 54},
		"sliding counter": {&slidingCounter{limit: 5, length: 10 * time.Second}, 45},
	} {
		accepted := 0
		for now := time.Duration(begin); now < begin+100*time.Second; now += 10 * time.Millisecond {
			if tt.meter.free(now) {
				tt.meter.count(now)
				accepted++
			}
		}
		require.InDelta(t, tt.accepted, accepted, 3, name)
	}
}

func TestConcurrency_countsRequestsInFlight(t *testing.T) {
	l := &limiter{limit: &Limit{Kind: InFlight}, meter: &concurrency{limit: 2}}
	require.Equal(t, []bool{true, true, false}, []bool{l.admit(1), l.admit(1), l.admit(1)})
	l.leave()
	require.True(t, l.admit(2))
}

func TestBan_beginsAfterRejectionsAndIsExtended(t *testing.T) {
	for _, extend := range []bool{false, true} {
		l := &limiter{
			limit: &Limit{}, meter: &bucket{interval: time.Hour, burst: 1},
			ban: ban{Ban: Ban{After: 3, Within: 10 * time.Second, Length: time.Minute, Extend: extend}},
		}
		now := time.Duration(begin)
		require.True(t, l.admit(now))
		for range 3 {
			require.Zero(t, l.ban.until)
			require.False(t, l.admit(now))
		}
		require.Equal(t, now+time.Minute, l.ban.until)
		require.False(t, l.admit(now+30*time.Second))
		want := now + time.Minute
		if extend {
			want = now + 90*time.Second
		}
		require.Equal(t, want, l.ban.until)
		require.GreaterOrEqual(t, l.next(now), want)
	}
}

func TestOthers_useTheirShare(t *testing.T) {
	for _, share := range []float64{.2, .7} {
		w := &World{Seed: 7, Limit: &Limit{Kind: Bucket, Count: 100, Window: 10 * time.Second, Burst: 5, Others: share, Backends: 1}}
		l, accepted := w.newLimiter(0, begin), 0
		for now := time.Duration(begin); now < begin+100*time.Second; now += time.Millisecond {
			if l.admit(now) {
				accepted++
			}
		}
		require.InDelta(t, 1000*(1-share), accepted, 100, "%v", share)
	}
}

func TestBoth_acceptsWhatBothAccept(t *testing.T) {
	m := &both{&bucket{interval: time.Second, burst: 2}, &fixedWindow{limit: 3, length: time.Minute}}
	now := time.Duration(begin)
	for i, want := range []time.Duration{0, 0, time.Second, time.Minute} {
		require.Equal(t, begin+want, m.next(now), "%d", i)
		now = m.next(now)
		require.True(t, m.free(now))
		m.count(now)
	}
}
