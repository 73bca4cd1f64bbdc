package throttleredis

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/warmup"
)

// A Store has a limiter for each Spec of a rules file, under the name that it is given.
func TestStore_Limiter(t *testing.T) {
	text := "domain: a\nlimits:\n"
	for i, l := range []string{
		"algorithm: token_bucket, burst: 3", "algorithm: refill, burst: 3", "algorithm: leaky_bucket, burst: 3, queue: 2", "algorithm: fixed_window", "algorithm: permits_per_period",
		"algorithm: sliding_log", "algorithm: sliding_counter", "algorithm: sub_windows, granularity: 1s", "algorithm: nginx, burst: 2, nodelay: true", "algorithm: warm_up, warm_up: {period: 10s}",
	} {
		text += fmt.Sprintf("  - name: n%d\n    match: GET /%d\n    rate_limit: {unit: minute, requests_per_unit: 3, %s}\n", i, i, l)
	}
	s, kinds := newTestStore(t), map[string]bool{}
	_, err := rules.Parse([]byte(text), rules.Config{Build: func(l *rules.Limit) (throttle.Limiter, error) {
		limiter, err := s.Limiter(l.ID, l.Spec)
		require.NoError(t, err, l.ID)
		d := take(t, limiter, "k")
		require.True(t, d.OK, l.ID)
		require.Equal(t, l.ID, d.Policy)
		kinds[limiter.limit.algorithm] = true
		return limiter, nil
	}})
	require.NoError(t, err)
	require.Len(t, kinds, 8, "permits_per_period is a fixed window, sub_windows are a sliding log")

	again, err := s.Limiter("direct", throttle.PerHour(3))
	require.NoError(t, err)
	require.Equal(t, again.redisKey("k"), s.TokenBucket(throttle.Limit{Name: "direct", Count: 3, Per: time.Hour}).redisKey("k"))
	for kind, spec := range map[string]rules.Spec{
		"tickqueue":   throttle.TickQueueConfig{Limit: throttle.PerSecond(1), Queue: 2},
		"concurrency": throttle.ConcurrencyConfig{Count: 1, MaxAge: time.Minute},
		"warmup":      warmup.BurstyConfig{Limit: throttle.PerSecond(1)},
	} {
		l, err := s.Limiter(kind, spec)
		require.NoError(t, err)
		require.Equal(t, kind, l.limit.algorithm)
	}
	for text, spec := range map[string]rules.Spec{
		`throttleredis: limit "x": a <nil> is not kept in Redis`:                 nil,
		`throttleredis: limit "x": a throttleredis.banSpec is not kept in Redis`: banSpec{},
		`throttle: limit "x": Count is -1`:                                       throttle.PerHour(-1),
		`throttleredis: warm-up "x": Outage is 1s: leave it 0`:                   warmup.Config{Limit: throttle.PerSecond(1), Outage: time.Second},
		`throttleredis: concurrency "x": MaxAge is 0: say after how long the`:    throttle.ConcurrencyConfig{Count: 1},
	} {
		_, err := s.Limiter("x", spec)
		require.ErrorContains(t, err, text)
	}
}

// A banSpec is a Spec that a Store does not have.
type banSpec struct{ keyed.BanConfig }

func (banSpec) String() string { return "" }
