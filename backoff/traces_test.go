package backoff

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A trace is a line of testdata/backoff_traces.jsonl: the delays of another library in
// nanoseconds, or the bounds of its random delays.
type trace struct {
	Kind   string
	Params struct {
		Min         int64   `json:"min_ns"`
		Max         int64   `json:"max_ns"`
		Base        int64   `json:"base_ns"`
		Initial     int64   `json:"initial_ns"`
		Multiplier  float64 `json:"multiplier"`
		Factor      float64 `json:"factor"`
		MaxInterval int64   `json:"max_interval_ns"`
		MaxElapsed  int64   `json:"max_elapsed_ns"`
	}
	Seq      []int64   `json:"seq_ns"`
	Min      []int64   `json:"min_ns"`
	Max      []int64   `json:"max_ns"`
	SeenMean []float64 `json:"seen_mean_ns"`
}

func TestTraces_replay(t *testing.T) {
	replays := map[string]func(*testing.T, trace){
		"exp2_capped":     replayDoubling,
		"cenkalti_exp":    func(*testing.T, trace) {}, // replayed in package backoff/cenkalti
		"cenkalti_jitter": replayPlusMinus,
		"full_jitter":     replayFull,
		"linear_jitter":   replayLinear,
	}
	seen := map[string]int{}
	for i, tr := range readTraces(t) {
		replay, ok := replays[tr.Kind]
		require.True(t, ok, "line %d: unknown kind %s", i+1, tr.Kind)
		replay(t, tr)
		seen[tr.Kind]++
	}
	require.Equal(t, map[string]int{"exp2_capped": 30, "cenkalti_exp": 30, "cenkalti_jitter": 10, "full_jitter": 8, "linear_jitter": 5}, seen)
}

func readTraces(t *testing.T) []trace {
	f, err := os.Open("testdata/backoff_traces.jsonl")
	require.NoError(t, err)
	defer f.Close()
	var all []trace
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var tr trace
		require.NoError(t, json.Unmarshal(lines.Bytes(), &tr))
		all = append(all, tr)
	}
	require.NoError(t, lines.Err())
	return all
}

// replayDoubling compares delays with a library that computes in float64, which is inexact above
// 2^53 nanoseconds (104 days). Delays are therefore compared as float64.
func replayDoubling(t *testing.T, tr trace) {
	var p Policy = Exponential{Base: time.Duration(tr.Params.Min), Max: time.Duration(tr.Params.Max), Jitter: None}
	if tr.Params.Min == 0 {
		p = Constant(0) // Exponential treats a Base of 0 as the default
	}
	for i, want := range tr.Seq {
		require.Equal(t, float64(want), float64(p.Delay(i+1, 0)), "%+v, attempt %d", tr.Params, i+1)
	}
}

// replayPlusMinus compares delays with a library that limits the middle of the range, where
// backoff limits its end; Max is adjusted to make the ranges equal. The range of the library is
// one nanosecond longer than documented.
func replayPlusMinus(t *testing.T, tr trace) {
	p := tr.Params
	e := Exponential{
		Base: time.Duration(p.Initial), Max: time.Duration(float64(p.MaxInterval) * (1 + p.Factor)),
		Factor: p.Multiplier, Jitter: PlusMinus, Spread: p.Factor,
	}
	inBounds(t, tr, e, func(random func() float64) Policy { e.Rand = random; return e })
}

func replayFull(t *testing.T, tr trace) {
	e := Exponential{Base: time.Duration(tr.Params.Base), Max: time.Duration(tr.Params.Max)}
	inBounds(t, tr, e, func(random func() float64) Policy { e.Rand = random; return e })
	for i := range tr.Max {
		e.Rand = constant(belowOne)
		require.Equal(t, time.Duration(tr.Max[i]), e.Delay(i+1, 0))
	}
}

// replayLinear compares attempt*U[min, max] with a Linear around the middle of that range.
func replayLinear(t *testing.T, tr trace) {
	low, high := tr.Params.Min, tr.Params.Max
	l := Linear{
		Base: time.Duration((low + high) / 2), Max: time.Hour,
		Jitter: PlusMinus, Spread: float64(high-low) / float64(high+low),
	}
	if low == high {
		l.Jitter = None
	}
	inBounds(t, tr, l, func(random func() float64) Policy { l.Rand = random; return l })
}

// inBounds checks 1,000 delays and both extremes of p against the bounds of tr, and their mean
// against the mean in tr.
func inBounds(t *testing.T, tr trace, p Policy, with func(random func() float64) Policy) {
	rng := rand.New(rand.NewPCG(11, 12))
	policies := []Policy{with(constant(0)), with(constant(belowOne))}
	for range 1000 {
		policies = append(policies, with(constant(rng.Float64())))
	}
	for i := range tr.Min {
		sum := time.Duration(0)
		for _, p := range policies {
			d := p.Delay(i+1, 0)
			require.True(t, tr.Min[i] <= int64(d) && int64(d) <= tr.Max[i], "%s %+v, attempt %d: %d not in [%d, %d]",
				tr.Kind, tr.Params, i+1, d, tr.Min[i], tr.Max[i])
			sum += d / time.Duration(len(policies))
		}
		if tr.SeenMean != nil {
			require.InEpsilon(t, tr.SeenMean[i], float64(sum), 0.1, "%s %+v, attempt %d", tr.Kind, tr.Params, i+1)
		}
	}
}
