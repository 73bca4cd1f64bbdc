package throttleredis_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/replay"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/warmup"
)

// Every limiter makes the decisions of the reference traces, operation by operation, like
// those in memory. Scenarios that change a limit during use are excluded.
func TestLimiters_agreeWithReferenceTraces(t *testing.T) {
	limiters := redisLimiters(t)
	for file, want := range map[string]replay.Report{
		"../throttle/testdata/algorithms.jsonl": {Scenarios: 61, Ops: 2648},
		"../throttle/testdata/nginx.jsonl":      {Scenarios: 30, Ops: 1499, Waived: 3},
		"../throttle/testdata/rolling.jsonl":    {Scenarios: 25, Ops: 665},
		"../warmup/testdata/guava.jsonl":        {Scenarios: 74, Ops: 1002, Skipped: 35},
	} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			got, known, err := limiters.File(file)
			require.NoError(t, err)
			require.True(t, known)
			require.Empty(t, got.Differences)
			want.File, got.Differences = filepath.Base(file), nil
			require.Equal(t, want, got)
		})
	}
}

// redisLimiters returns limiters of separate stores.
func redisLimiters(t *testing.T) *replay.Limiters {
	throttleredis.NewTestStore(t) // skips without a server, before subtests of t run
	store := func(c throttle.Clock) *throttleredis.Store {
		s := throttleredis.NewTestStore(t)
		s.UseLocalClock()
		s.Clock = c
		return s
	}
	return &replay.Limiters{
		Unit:        time.Microsecond,
		TokenBucket: func(l throttle.Limit, c throttle.Clock) throttle.Limiter { return store(c).TokenBucket(l) },
		RefillBucket: func(r throttle.RefillBucketConfig, c throttle.Clock) throttle.Limiter {
			missing := r.InitialDeficit
			r.InitialDeficit, r.Anchor = 0, c.Now()
			l := store(c).RefillBucket(r)
			if missing > 0 {
				_, err := l.Reserve(t.Context(), throttle.Claim{Cost: missing})
				require.NoError(t, err)
			}
			return l
		},
		LeakyBucket: func(l throttle.LeakyBucketConfig, c throttle.Clock) throttle.Limiter { return store(c).LeakyBucket(l) },
		TickQueue: func(q throttle.TickQueueConfig, c throttle.Clock) throttle.Limiter {
			q.Anchor = c.Now()
			return store(c).TickQueue(q)
		},
		Nginx:       func(l throttle.NginxConfig, c throttle.Clock) throttle.Limiter { return store(c).Nginx(l) },
		FixedWindow: func(q throttle.FixedWindowConfig, c throttle.Clock) throttle.Limiter { return store(c).FixedWindow(q) },
		SlidingLog:  func(l throttle.SlidingLogConfig, c throttle.Clock) throttle.Limiter { return store(c).SlidingLog(l) },
		SlidingCounter: func(k throttle.SlidingCounterConfig, c throttle.Clock) throttle.Limiter {
			return store(c).SlidingCounter(k)
		},
		WarmUp: func(w warmup.Config, c throttle.Clock) throttle.Limiter { return store(c).WarmUp(w) },
		Bursty: func(b warmup.BurstyConfig, c throttle.Clock) throttle.Limiter {
			l := store(c).Bursty(b)
			d, err := l.Reserve(t.Context(), throttle.Claim{}) // in memory idle units accrue from the creation, here from this claim
			require.NoError(t, err)
			l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
			return l
		},
	}
}

// The traces of token buckets have a shorter form, which convertTraces converts.
func TestTokenBucket_agreesWithReferenceTraces(t *testing.T) {
	limiters := redisLimiters(t)
	for file, want := range map[string]replay.Report{
		"token_bucket.jsonl": {Scenarios: 26, Ops: 1305},
		"gcra.jsonl":         {Scenarios: 26, Ops: 814},
	} {
		got, known, err := limiters.File(convertTraces(t, file))
		require.NoError(t, err)
		require.True(t, known)
		require.Empty(t, got.Differences)
		want.File, got.Differences = file, nil
		require.Equal(t, want, got)
	}
}

// convertTraces returns the name of a copy of a file in the form that package replay reads.
func convertTraces(t *testing.T, name string) string {
	in, err := os.Open("../throttle/testdata/" + name)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.Create(filepath.Join(t.TempDir(), name))
	require.NoError(t, err)
	defer out.Close()
	for lines, to := json.NewDecoder(in), json.NewEncoder(out); lines.More(); {
		var s map[string]any
		require.NoError(t, lines.Decode(&s))
		s["params"], s["ideal_flips"] = maps.Clone(s), 0
		for _, op := range s["ops"].([]any) {
			op := op.(map[string]any)
			op["t_us"] = op["t_us"].(float64) + s["t0_us"].(float64)
			for _, field := range []string{"allowed", "remaining", "retry_after", "reset_after"} {
				op["exact_"+field] = op[field]
			}
		}
		require.NoError(t, to.Encode(s))
	}
	return out.Name()
}
