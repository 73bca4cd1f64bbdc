package cenkalti

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	v4 "github.com/cenkalti/backoff/v4"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
)

// A trace is a line of kind cenkalti_exp in backoff/testdata/backoff_traces.jsonl: delays of the
// ExponentialBackOff of cenkalti/backoff/v4 without jitter. Package backoff replays the other
// kinds.
type trace struct {
	Kind   string
	Params struct {
		Initial     int64   `json:"initial_ns"`
		Multiplier  float64 `json:"multiplier"`
		MaxInterval int64   `json:"max_interval_ns"`
		MaxElapsed  int64   `json:"max_elapsed_ns"`
	}
	Seq []int64 `json:"seq_ns"`
}

func TestTraces_replay(t *testing.T) {
	f, err := os.Open("../testdata/backoff_traces.jsonl")
	require.NoError(t, err)
	defer f.Close()
	seen := 0
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var tr trace
		require.NoError(t, json.Unmarshal(lines.Bytes(), &tr))
		if tr.Kind == "cenkalti_exp" {
			replay(t, tr)
			seen++
		}
	}
	require.NoError(t, lines.Err())
	require.Equal(t, 30, seen)
}

// replay compares a BackOff with a trace. It moves the clock by each delay; -1 in a trace means
// Stop.
func replay(t *testing.T, tr trace) {
	clk := &steppedClock{}
	p := backoff.Exponential{
		Base: time.Duration(tr.Params.Initial), Max: time.Duration(tr.Params.MaxInterval),
		Factor: tr.Params.Multiplier, Jitter: backoff.None,
	}
	b := &BackOff{Policy: p, MaxElapsed: time.Duration(tr.Params.MaxElapsed), Clock: clk}
	for i, want := range tr.Seq {
		got := b.NextBackOff()
		require.Equal(t, time.Duration(want), got, "%+v, attempt %d", tr.Params, i+1)
		clk.now = clk.now.Add(max(got, 0))
	}
}

// TestExponential_agreesWithCenkalti checks that ExponentialBackOff of cenkalti/backoff/v4
// and backoff.Exponential return the same delays without jitter.
func TestExponential_agreesWithCenkalti(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range 300 {
		theirs := &v4.ExponentialBackOff{
			InitialInterval: time.Duration(rng.Int64N(int64(s))), Multiplier: 1 + 3*rng.Float64(),
			MaxInterval: time.Duration(rng.Int64N(int64(time.Hour))) + s, Clock: v4.SystemClock,
		}
		theirs.Reset()
		ours := backoff.Exponential{Base: theirs.InitialInterval, Max: theirs.MaxInterval, Factor: theirs.Multiplier, Jitter: backoff.None}
		for attempt := 1; attempt <= 60; attempt++ {
			require.Equal(t, theirs.NextBackOff(), ours.Delay(attempt, 0), "%+v, attempt %d", ours, attempt)
		}
	}
}
