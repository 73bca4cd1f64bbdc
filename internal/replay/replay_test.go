package replay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line with one different decision is reported, for every shape.
func TestFile_reportsMismatches(t *testing.T) {
	for name, tt := range map[string]struct{ line, right, wrong string }{
		"algorithm": {
			`{"algo":"sliding_log","params":{"limit":1,"window_us":1000},"ops":[{"t_us":0,"n":1,"allowed":true,"slack":"0","retry_after_s":"0"},{"t_us":1,"n":1,"allowed":false,"slack":"-1","retry_after_s":"999/1000000"}]}`,
			`999/1000000`, `1/1000`,
		},
		"gcra": {
			`{"rate":1,"burst":2,"period_s":1,"ideal_flips":0,"ops":[{"op":"allowN","t_us":0,"n":1,"exact_allowed":1,"exact_remaining":1,"exact_retry_after":-1,"exact_reset_after":1}]}`,
			`"exact_remaining":1`, `"exact_remaining":0`,
		},
		"nginx": {
			`{"rate_milli":1000,"burst":1,"delay":0,"ops":[{"t_ms":0,"result":"pass","delay_ms":0,"excess_milli":0},{"t_ms":1,"result":"delay","delay_ms":999,"excess_milli":999}]}`,
			`999,`, `998,`,
		},
		"rolling": {
			`{"interval_ms":10,"max":1,"min_difference_ms":0,"ops":[{"op":"limit","id":"a","t_us":0,"blocked":false,"ms_until_allowed":10,"remaining":0},{"op":"would","id":"a","t_us":1,"blocked":true,"ms_until_allowed":10,"remaining":0}]}`,
			`"blocked":true`, `"blocked":false`,
		},
		"rate": {
			`{"limit":10,"burst":1,"ideal_flips":0,"time_goes_back":false,"cancels_twice":false,"ops":[{"op":"allow","t_ns":0,"n":1,"ok":true,"tokens":0},{"op":"reserve","t_ns":0,"n":1,"id":0,"ok":true,"delay_ns":100000000,"tokens":-1}]}`,
			`100000000`, `100000009`,
		},
		"rate, waiting": {
			`{"limit":10,"burst":1,"waiters":[{"start_ns":0,"n":1,"result":"ok","end_ns":0},{"start_ns":0,"n":1,"deadline_ns":9,"result":"exceeds_deadline","end_ns":0}],"final_t_ns":0,"final_tokens":0}`,
			`exceeds_deadline`, `ok`,
		},
		"guava": {
			`{"kind":"bursty","permitsPerSecond":5,"warmup_ms":0,"coldFactor":0,"maxBurstSeconds":1,"ops":[{"op":"acquire","n":1,"at_us":0,"result":0},{"op":"acquire","n":1,"at_us":0,"result":200000}],"ideal_max_dev_us":0.0,"ideal_flips":0}`,
			`200000`, `200002`,
		},
		"back-off": {
			`{"kind":"exp2_capped","params":{"min_ns":1,"max_ns":3},"seq_ns":[1,2,3]}`,
			`1,2,3`, `1,2,4`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, tt.line, tt.right)
			r, known, err := replayText(t, tt.line)
			require.NoError(t, err)
			require.True(t, known)
			require.Empty(t, r.Differences)
			require.Equal(t, 1, r.Scenarios)
			require.Positive(t, r.Ops)

			r, _, err = replayText(t, strings.Replace(tt.line, tt.right, tt.wrong, 1))
			require.NoError(t, err)
			require.Equal(t, 1, r.Mismatches)
			require.Len(t, r.Differences, 1)
		})
	}
}

// Differences in a scenario with a flag are waived.
func TestFile_waivesByFlags(t *testing.T) {
	line := `{"limit":10,"burst":1,"ideal_flips":1,"time_goes_back":false,"cancels_twice":false,"ops":[{"op":"allow","t_ns":0,"n":1,"ok":false,"tokens":0}]}`
	r, _, err := replayText(t, line)
	require.NoError(t, err)
	require.Equal(t, 1, r.Waived)
	require.Zero(t, r.Mismatches)
	r, _, err = replayText(t, strings.Replace(line, `"ideal_flips":1`, `"ideal_flips":0`, 1))
	require.NoError(t, err)
	require.Equal(t, 1, r.Mismatches)
}

func TestFile_ignoresUnknownShapes(t *testing.T) {
	_, known, err := replayText(t, `{"weather":"fine"}`)
	require.NoError(t, err)
	require.False(t, known)
	_, _, err = replayText(t, `{`)
	require.Error(t, err)
	_, _, err = replayText(t, `{"algo":"hourglass","params":{},"ops":[]}`)
	require.ErrorContains(t, err, "hourglass")
	_, _, err = File(filepath.Join(t.TempDir(), "none"))
	require.Error(t, err)
}

func TestFile_replaysBackoff(t *testing.T) {
	r, known, err := File("../../backoff/testdata/backoff_traces.jsonl")
	require.NoError(t, err)
	require.True(t, known)
	require.Empty(t, r.Differences)
}

func replayText(t *testing.T, text string) (Report, bool, error) {
	t.Helper()
	f := filepath.Join(t.TempDir(), "trace.jsonl")
	require.NoError(t, os.WriteFile(f, []byte(text+"\n"), 0o600))
	return File(f)
}
