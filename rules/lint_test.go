package rules

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// TestLint_findings lints a file with many findings, and a file with every word.
func TestLint_findings(t *testing.T) {
	for _, name := range []string{"odd", "all"} {
		text, err := os.ReadFile("testdata/" + name + ".yaml")
		require.NoError(t, err)
		found, err := Lint(text, testConfig)
		require.NoError(t, err)
		var b strings.Builder
		for _, f := range found {
			fmt.Fprintln(&b, f)
		}
		golden(t, name+"_lint.txt", b.String())
	}
	_, err := Lint([]byte("domain: ["), Config{})
	require.Error(t, err)
}

// TestLint_redundantLimitsNeverReject sends many requests through two limits, and checks that a
// limit that is reported as redundant never rejects one.
func TestLint_redundantLimitsNeverReject(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 2))
	compared := 0
	for range 1500 {
		o, l := randomLimit(rng), randomLimit(rng)
		if !allowsAtMost(o, l) {
			continue
		}
		compared++
		clk := fixedClock(friday)
		first, second := newLimiter(o.Spec, clk), newLimiter(l.Spec, clk)
		now := friday
		for range 200 {
			now = now.Add(time.Duration(rng.Int64N(int64(3 * time.Second))))
			for range 1 + rng.IntN(30) {
				d, err := first.Reserve(t.Context(), throttle.Claim{Now: now, Cost: o.Cost})
				if err != nil {
					require.NoError(t, err)
				}
				if !d.OK {
					continue
				}
				d, err = second.Reserve(t.Context(), throttle.Claim{Now: now, Cost: l.Cost})
				if err != nil || !d.OK {
					require.NoError(t, err)
					require.Fail(t, "a redundant limit rejects", "%s rejects what %s lets through", l.definition(), o.definition())
				}
			}
		}
	}
	require.Greater(t, compared, 80)
}

func randomLimit(rng *rand.Rand) *Limit {
	rate := throttle.Limit{Count: 1 + rng.Int64N(30), Per: time.Duration(1+rng.IntN(6)) * time.Second}
	l := &Limit{Spec: throttle.SlidingLogConfig{Limit: rate}, Cost: 1 + rng.Int64N(2)}
	switch rng.IntN(3) {
	case 0:
		rate.Burst = 1 + rng.Int64N(60)
		l.Spec = rate
	case 1:
		l.Spec = throttle.FixedWindowConfig{Count: rate.Count, Per: rate.Per}
	}
	return l
}

// A file without limits, as after an incomplete write, removes all limits.
func TestLint_fileWithoutLimits(t *testing.T) {
	for text, want := range map[string]int{
		"domain: d": 1, "domain: d\nlimits: []": 1, "domain: d\ndescriptors: []": 1,
		"domain: d\nlimits: [{name: a, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: sliding_log}}]": 0,
	} {
		found, err := Lint([]byte(text), Config{})
		require.NoError(t, err)
		require.Len(t, found, want, text)
		if want > 0 {
			require.Equal(t, "1:1: the file has no limits, so no request is limited: add limits, or check that it was written completely", found[0].String())
		}
	}
}
