//go:build darwin || linux

package batch_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
)

// inChild runs the test in a process of its own, because a limit for files would also hold for
// those of the test binary. It reports whether this is that process.
func inChild(t *testing.T) bool {
	const variable = "HEED_TEST_CHILD"
	if os.Getenv(variable) == t.Name() {
		return true
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.count=1"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	child := exec.Command(os.Args[0], args...)
	child.Env = append(os.Environ(), variable+"="+t.Name())
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return false
}

// limitFiles lets no file become longer than size until the returned function is called, as on a
// full disk.
func limitFiles(t *testing.T, size uint64) (remove func()) {
	var before syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before))
	limit := before
	limit.Cur = size
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	return func() { require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before)) }
}

// sizeStep returns the difference between two sizes at which a disk is full.
func sizeStep() uint64 {
	if testing.Short() {
		return 3583
	}
	return 1021
}

// TestRun_aFullDiskStopsTheJob runs jobs of POSTs without key on disks of many sizes. A full disk
// ends the job when the running items have ended, and what they did is recorded: a later process
// does the others, none twice, and no outcome is unknown.
func TestRun_aFullDiskStopsTheJob(t *testing.T) {
	if !inChild(t) {
		return
	}
	const items = 150
	full, sizes := 0, 0
	for size := uint64(0); size < 40<<10; size += sizeStep() {
		sizes++
		var posts atomic.Int64
		server := &heedtest.Server{Respond: func(r heedtest.Request) heedtest.Response {
			if n := posts.Add(1); n%5 == 0 { // a rejected one: the item fails and is repeated
				return heedtest.Response{Status: 422}
			}
			return heedtest.Response{}
		}}
		server.Start()
		client := heed.NewClient(&heed.Transport{Base: server.Transport()})
		fn := func(ctx context.Context, i int) error {
			return send(ctx, client, "POST", fmt.Sprint(server.URL, "/", i), "")
		}
		o := batch.Options{Checkpoint: checkpointIn(t), Workers: 8}
		remove := limitFiles(t, size)
		report, err := batch.Run(t.Context(), upTo(items), fn, o)
		remove()
		if err != nil && report.Done+report.Failed < items {
			require.ErrorContains(t, err, "checkpoint", size)
			full++
		}
		require.Zero(t, report.Interrupted+report.Unknown, size)
		for range 10 {
			if report, err = batch.Run(t.Context(), upTo(items), fn, o); err == nil {
				break
			}
			require.Zero(t, report.Unknown, "%d: %v", size, err)
		}
		require.NoError(t, err, size)
		require.Equal(t, items, report.Done)
		done := map[string]int{}
		for _, r := range server.Requests() {
			if r.Status == 200 {
				done[r.URL]++
			}
		}
		require.Len(t, done, items)
		for url, n := range done {
			require.Equal(t, 1, n, "%s on a disk of %d bytes", url, size)
		}
		client.CloseIdleConnections()
		server.Close()
	}
	require.Greater(t, full, sizes/4)
}

// TestOutbox_aFullDisk keeps requests without a key on disks of many sizes, while the server is
// offline and then online: what Submit accepted is delivered once, also on the full disk, and no outcome is unknown.
func TestOutbox_aFullDisk(t *testing.T) {
	if !inChild(t) {
		return
	}
	server := new(heedtest.Server)
	server.Start()
	defer server.Close()
	rejected := 0
	for size := uint64(100); size < 60<<10; size += sizeStep() {
		network := &offline{RoundTripper: server.Transport()}
		network.is.Store(true)
		unknown := 0
		c := batch.OutboxConfig{
			Path: filepath.Join(t.TempDir(), "outbox"), Backoff: backoff.Constant(time.Millisecond),
			Client:         heed.NewClient(&heed.Transport{Base: network, Retry: &heed.RetryPolicy{MaxAttempts: 1}}),
			IdempotencyKey: func(*http.Request) string { return "" },
			Done: func(d batch.Delivery) batch.Action {
				if d.Err != nil {
					unknown++
				}
				return batch.Leave
			},
		}
		remove := limitFiles(t, size)
		accepted := map[string]bool{}
		o, err := batch.OpenOutbox(c)
		if err != nil {
			remove()
			continue
		}
		for i := range 40 {
			url := fmt.Sprintf("/%d/%d", size, i)
			req, err := http.NewRequest("POST", server.URL+url, strings.NewReader(strings.Repeat("x", 1000)))
			require.NoError(t, err)
			if _, err := o.Submit(req); err == nil {
				accepted[url] = true
			} else {
				rejected++
			}
		}
		network.is.Store(false)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		require.NoError(t, o.Drain(ctx), "the reserve allows for what was accepted")
		cancel()
		_, _ = o.Close(t.Context())
		remove()
		o, err = batch.OpenOutbox(c)
		require.NoError(t, err)
		require.Zero(t, o.State().Requests, "none is delivered again")
		_, err = o.Close(t.Context())
		require.NoError(t, err)
		require.Zero(t, unknown)
		got := map[string]int{}
		for _, r := range server.Requests() {
			if strings.HasPrefix(r.URL, fmt.Sprintf("/%d/", size)) {
				got[r.URL]++
			}
		}
		require.Len(t, got, len(accepted))
		for url, n := range got {
			require.Equal(t, 1, n, url)
			require.True(t, accepted[url], url)
		}
	}
	require.Positive(t, rejected)
}
