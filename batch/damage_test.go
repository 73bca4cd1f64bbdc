package batch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/batch"
)

// outboxFile returns the file of an Outbox with five requests, and its length after each.
func outboxFile(t *testing.T) (content []byte, ends []int) {
	path := filepath.Join(t.TempDir(), "outbox")
	o, err := batch.OpenOutbox(batch.OutboxConfig{Path: path, Client: &http.Client{Transport: neverRoundTrip{}}})
	require.NoError(t, err)
	defer o.Close(ended)
	sent := int(o.State().Bytes)
	for i := range 5 {
		method := "POST"
		if i == 0 {
			method = "GET" // the one that is sent
		}
		req, err := http.NewRequest(method, fmt.Sprint("http://a.test/", i), strings.NewReader("body"))
		require.NoError(t, err)
		_, err = o.Submit(req)
		require.NoError(t, err)
		content, err = os.ReadFile(path)
		require.NoError(t, err)
		content = content[:len(strings.TrimRight(string(content), "\x00"))]
		ends = append(ends, len(content))
	}
	require.Zero(t, sent)
	return content, ends
}

func paths(requests []batch.QueuedRequest) (all []string) {
	for _, q := range requests {
		all = append(all, q.Request.URL.Path)
	}
	return all
}

// TestReadOutbox_readsAroundDamage changes each byte of a file: all requests but the damaged one
// are read, and those before it count as sent. Nothing is lost without an error or a count of the
// bytes that were cut.
func TestReadOutbox_readsAroundDamage(t *testing.T) {
	content, ends := outboxFile(t)
	path := filepath.Join(t.TempDir(), "damaged")
	all := []string{"/0", "/1", "/2", "/3", "/4"}
	step := 1
	if testing.Short() {
		step = 3
	}
	for at := 0; at < len(content); at += step {
		damaged := slices.Clone(content)
		damaged[at] ^= 0x10
		require.NoError(t, os.WriteFile(path, damaged, 0o600))
		hit, _ := slices.BinarySearch(ends, at+1)
		inHeader := at < 8+24+len(`xO{"Outbox":1,"NextID":1}`)
		last := hit == 4
		requests, err := batch.ReadOutbox(path)
		want := slices.Clone(all)
		if !inHeader {
			want = slices.Delete(want, hit, hit+1)
		}
		require.Equal(t, want, paths(requests), at)
		require.Equal(t, !last, errors.Is(err, batch.ErrDamaged), at)
		for _, q := range requests {
			require.Equal(t, !last && !inHeader && q.ID < uint64(hit+1) && q.Request.Method == "POST", q.Sent, "%d: %d", at, q.ID)
		}

		o, err := batch.OpenOutbox(batch.OutboxConfig{Path: path, Client: &http.Client{Transport: neverRoundTrip{}}})
		require.Equal(t, !last, errors.Is(err, batch.ErrDamaged), at)
		if last {
			require.NoError(t, err)
			require.Equal(t, int64(ends[4]-ends[3]), o.State().Cut, at)
			_, _ = o.Close(ended)
			continue
		}
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, damaged, after, "it is not modified")
	}
}

// An end that was not written completely is counted, and the zeros of the reserve are not.
func TestOutbox_reportsWhatWasCut(t *testing.T) {
	content, ends := outboxFile(t)
	path := filepath.Join(t.TempDir(), "outbox")
	for at := ends[3]; at <= len(content); at++ {
		require.NoError(t, os.WriteFile(path, append(slices.Clone(content[:at]), make([]byte, 1000)...), 0o600))
		o, err := batch.OpenOutbox(batch.OutboxConfig{Path: path, Client: &http.Client{Transport: neverRoundTrip{}}})
		require.NoError(t, err)
		cut := len(strings.TrimRight(string(content[ends[3]:at]), "\x00"))
		if at == len(content) {
			cut = 0
		}
		require.EqualValues(t, cut, o.State().Cut, at)
		_, _ = o.Close(ended)
	}

	o := batch.Options{Checkpoint: checkpointIn(t)}
	run := func(i int) batch.Report {
		report, err := batch.Run(t.Context(), upTo(i), func(context.Context, int) error { return nil }, o)
		require.NoError(t, err)
		return report
	}
	require.Zero(t, run(3).Cut)
	content, err := os.ReadFile(o.Checkpoint)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(o.Checkpoint, append(content, "torn"...), 0o600))
	require.EqualValues(t, 4, run(3).Cut)
	require.Zero(t, run(3).Cut)
}

// The failures of a damaged checkpoint can be read around the damage.
func TestFailures_readsAroundDamage(t *testing.T) {
	o := batch.Options{Checkpoint: checkpointIn(t), Workers: 1, Repeat: batch.RepeatNever} // each item is on disk when it begins
	_, err := batch.Run(t.Context(), upTo(10), func(_ context.Context, i int) error { return fmt.Errorf("fault %d", i) }, o)
	require.ErrorIs(t, err, batch.ErrItems)
	content, err := os.ReadFile(o.Checkpoint)
	require.NoError(t, err)
	damaged := strings.Replace(string(content), "fault 4", "fault!4", 1)
	require.NoError(t, os.WriteFile(o.Checkpoint, []byte(damaged), 0o600))
	failures, err := batch.Failures(o.Checkpoint)
	require.ErrorIs(t, err, batch.ErrDamaged)
	require.Len(t, failures, 10)
	for i, f := range failures {
		require.Equal(t, i, f.Index)
		if i == 4 {
			require.ErrorIs(t, f, batch.ErrInterrupted)
		} else {
			require.EqualError(t, f.Err, fmt.Sprint("fault ", i))
		}
	}
}
