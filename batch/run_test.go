package batch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// upTo returns the numbers below n.
func upTo(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

// send sends a request and returns an error unless the status is 200.
func send(ctx context.Context, client *http.Client, method, url, key string) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("body"))
	if err != nil {
		return err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

func checkpointIn(t *testing.T) string { return filepath.Join(t.TempDir(), "checkpoint") }

func TestRun_processesEachItemOnceAndInOrder(t *testing.T) {
	var began []int
	report, err := batch.Run(t.Context(), upTo(100), func(ctx context.Context, i int) error {
		if batch.ItemFrom(ctx).Index != i || batch.ItemFrom(ctx).Repeated {
			return errors.New("wrong item")
		}
		began = append(began, i)
		return nil
	}, batch.Options{Workers: 1})
	require.NoError(t, err)
	require.Equal(t, 100, report.Done)
	require.Equal(t, slices.Collect(upTo(100)), began)
	require.Zero(t, batch.ItemFrom(t.Context()))
}

func TestRun_processesAsManyItemsAsWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		report, err := batch.Run(t.Context(), upTo(95), func(context.Context, int) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			return nil
		}, batch.Options{})
		require.NoError(t, err)
		require.EqualValues(t, 10, most.Load())
		require.Equal(t, 10*time.Second, report.Elapsed)
	})
}

func TestRun_reportsErrorsWithTheirIndex(t *testing.T) {
	fault := errors.New("fault")
	report, err := batch.Run(t.Context(), upTo(5000), func(_ context.Context, i int) error {
		if i%2 == 1 {
			return fmt.Errorf("%d: %w", i, fault)
		}
		return nil
	}, batch.Options{})
	require.ErrorIs(t, err, batch.ErrItems)
	require.ErrorIs(t, err, fault)
	require.Contains(t, err.Error(), "2500 items failed")
	require.Equal(t, 2500, report.Done)
	require.Equal(t, 2500, report.Failed)
	require.Len(t, report.Errors, 1000)
	require.True(t, slices.IsSortedFunc(report.Errors, func(a, b batch.ItemError) int { return a.Index - b.Index }))
	require.Equal(t, fmt.Sprintf("item %[1]d: %[1]d: fault", report.Errors[0].Index), report.Errors[0].Error())
}

func TestRun_endsWithItsContext(t *testing.T) {
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	path := checkpointIn(t)
	report, err := batch.Run(ctx, upTo(10), func(ctx context.Context, i int) error {
		if i == 3 {
			cancel(cause)
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}, batch.Options{Workers: 1, Checkpoint: path, StopTimeout: -1}) // the item waits for the end of its context
	require.ErrorIs(t, err, cause)
	require.Equal(t, 3, report.Done)
	require.Equal(t, 1, report.Interrupted)
	require.Zero(t, report.Failed)

	_, err = batch.Run(ctx, upTo(10), nil, batch.Options{})
	require.ErrorIs(t, err, cause)

	var repeated []int
	report, err = batch.Run(t.Context(), upTo(10), func(ctx context.Context, i int) error {
		if batch.ItemFrom(ctx).Repeated {
			repeated = append(repeated, i)
		}
		return nil
	}, batch.Options{Workers: 1, Checkpoint: path, Repeat: batch.RepeatAlways}) // it sent no request: its effects are unknown
	require.NoError(t, err)
	require.Equal(t, []int{3}, repeated)
	require.Equal(t, 1, report.Repeated)
	require.Equal(t, 3, report.Resumed)
	require.Equal(t, 10, report.Done)
}

// A new process knows nothing of the limit, and finds it partly used up by the one before. How long it takes is random: the median
// of five runs counts.
func TestRun_continuesAtThePaceOfTheServer(t *testing.T) {
	const most = 11500 * time.Millisecond
	var took []time.Duration
	runs, within := 5, 0
	if testing.Short() {
		runs = 3
	}
	for len(took) < runs && within <= runs/2 { // until most of them are within the bound: then the median is
		synctest.Test(t, func(t *testing.T) {
			server := &heedtest.Server{
				Limit:   &throttlehttp.Middleware{Limiter: throttle.NewTokenBucket(throttle.PerSecond(200))},
				Respond: func(heedtest.Request) heedtest.Response { return heedtest.Response{Delay: 20 * time.Millisecond} },
			}
			server.StartInMemory()
			defer server.Close()
			o := batch.Options{Workers: 50, Checkpoint: checkpointIn(t)}
			start := time.Now()
			for _, life := range []time.Duration{3 * time.Second, 3 * time.Second, time.Hour} {
				client := heed.NewClient(&heed.Transport{Base: server.Transport()})
				ctx, cancel := context.WithTimeoutCause(t.Context(), life, errors.New("killed"))
				_, _ = batch.Run(withoutDeadline{ctx}, upTo(2000), func(ctx context.Context, _ int) error {
					return send(ctx, client, "GET", server.URL, "")
				}, o)
				cancel()
				client.CloseIdleConnections()
			}
			took = append(took, time.Since(start))
			if took[len(took)-1] < most {
				within++
			}
			report, err := batch.Run(t.Context(), upTo(2000), nil, o)
			require.NoError(t, err)
			require.Equal(t, 2000, report.Resumed)
		})
	}
	require.Greater(t, within, runs/2, "2,000 items at 200 a second, and what each of three processes finds out about the limit: %v", took)
}

// withoutDeadline is a context that ends without an announcement.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// The Transport rejects requests that cannot be sent before the deadline. The items that are
// left have not failed.
func TestRun_itemsDoNotFailBeforeADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(heedtest.Server)
		server.StartInMemory()
		defer server.Close()
		client := heed.NewClient(&heed.Transport{Base: server.Transport(), Limiter: throttle.NewTokenBucket(throttle.PerSecond(1).WithBurst(1))})
		defer client.CloseIdleConnections()
		o := batch.Options{Workers: 20, Checkpoint: checkpointIn(t)}
		fn := func(ctx context.Context, _ int) error { return send(ctx, client, "GET", server.URL, "") }
		ctx, cancel := context.WithTimeout(t.Context(), 30500*time.Millisecond)
		defer cancel()
		report, err := batch.Run(ctx, upTo(100), fn, o)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.InDelta(t, 41, report.Done, 1) // the running ones have Options.StopTimeout beyond the deadline
		require.Zero(t, report.Failed)
		require.LessOrEqual(t, report.Interrupted, 20)
		report, err = batch.Run(t.Context(), upTo(100), fn, o)
		require.NoError(t, err)
		require.Equal(t, 100, report.Done)
		require.Len(t, server.Requests(), 100)
	})
}

// A deadline of the function's own is an error of the item.
func TestRun_aDeadlineOfTheItemIsItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(heedtest.Server)
		server.StartInMemory()
		defer server.Close()
		client := heed.NewClient(&heed.Transport{Base: server.Transport(), Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Hour, Burst: 1})})
		defer client.CloseIdleConnections()
		client.Timeout = time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		report, err := batch.Run(ctx, upTo(3), func(ctx context.Context, _ int) error { return send(ctx, client, "GET", server.URL, "") }, batch.Options{Workers: 1})
		require.ErrorIs(t, err, batch.ErrItems)
		require.Equal(t, 2, report.Failed)
	})
}

// An attempt that takes too long does not mean that the deadline of the job is near.
func TestRun_aSlowServerDoesNotEndTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &heedtest.Server{Respond: func(r heedtest.Request) heedtest.Response {
			if r.URL == "/0" {
				return heedtest.Response{Delay: time.Minute}
			}
			return heedtest.Response{}
		}}
		server.StartInMemory()
		defer server.Close()
		client := heed.NewClient(&heed.Transport{Base: server.Transport(), Retry: &heed.RetryPolicy{AttemptTimeout: time.Second}})
		defer client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		report, err := batch.Run(ctx, upTo(10), func(ctx context.Context, i int) error {
			return send(ctx, client, "GET", fmt.Sprint(server.URL, "/", i), "")
		}, batch.Options{Workers: 1})
		require.ErrorIs(t, err, batch.ErrItems)
		require.Equal(t, 1, report.Failed)
		require.Equal(t, 9, report.Done)
	})
}

// A context that ends after the last item makes no difference.
func TestRun_isCompleteIfItsContextEndsAfterTheLastItem(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := batch.Run(ctx, upTo(10), func(_ context.Context, i int) error {
		if i == 9 {
			cancel()
		}
		return nil
	}, batch.Options{Workers: 1})
	require.NoError(t, err)
}

func TestRun_stopsAfterMaxFailures(t *testing.T) {
	path := checkpointIn(t)
	o := batch.Options{Workers: 1, MaxFailures: 3, Checkpoint: path}
	calls := 0
	fail := func(context.Context, int) error {
		calls++
		return errors.New("fault")
	}
	report, err := batch.Run(t.Context(), upTo(100), fail, o)
	require.ErrorIs(t, err, batch.ErrTooManyFailures)
	require.Equal(t, 3, calls)
	require.Equal(t, 3, report.Failed)
}

func TestRun_continuesWhereAJobEnded(t *testing.T) {
	path := checkpointIn(t)
	keys := map[int]string{}
	process := func(ctx context.Context, i int) error {
		key := batch.ItemFrom(ctx).IdempotencyKey
		if keys[i] != "" && keys[i] != key {
			return errors.New("another key")
		}
		keys[i] = key
		if i >= 30 && !batch.ItemFrom(ctx).Repeated {
			return errors.New("fault")
		}
		return nil
	}
	// The function sends no request, so that its effects are unknown to RepeatSafe.
	o := batch.Options{Workers: 1, Checkpoint: path, MaxFailures: 2, Repeat: batch.RepeatAlways}
	_, err := batch.Run(t.Context(), upTo(50), process, o)
	require.ErrorIs(t, err, batch.ErrTooManyFailures)
	require.Len(t, keys, 32)

	o.MaxFailures = 0
	report, err := batch.Run(t.Context(), upTo(50), process, o)
	require.ErrorIs(t, err, batch.ErrItems)
	require.Equal(t, 30, report.Resumed)
	require.Equal(t, 32, report.Done) // the two that failed are repeated
	require.Equal(t, 2, report.Repeated)
	require.Equal(t, 18, report.Failed)

	report, err = batch.Run(t.Context(), upTo(50), process, o)
	require.NoError(t, err)
	require.Equal(t, 50, report.Done)

	report, err = batch.Run(t.Context(), upTo(50), func(context.Context, int) error { panic("called") }, o)
	require.NoError(t, err)
	require.Equal(t, 50, report.Resumed)

	distinct := map[string]bool{}
	for _, key := range keys {
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, key)
		distinct[key] = true
	}
	require.Len(t, distinct, 50)
	_, err = batch.Run(t.Context(), upTo(1), func(ctx context.Context, _ int) error {
		distinct[batch.ItemFrom(ctx).IdempotencyKey] = true
		return nil
	}, batch.Options{Checkpoint: checkpointIn(t)})
	require.NoError(t, err)
	require.Len(t, distinct, 51, "another job has other keys")
}

// killed runs a job of one item with the client of a server, copies the checkpoint while
// during runs in the item, and returns the path of the copy: the checkpoint of a process
// that was killed at that moment.
func killed(t *testing.T, o batch.Options, during func(ctx context.Context) error) string {
	o.Checkpoint = checkpointIn(t)
	copied := checkpointIn(t)
	_, err := batch.Run(t.Context(), upTo(1), func(ctx context.Context, _ int) error {
		if err := during(ctx); err != nil {
			return err
		}
		content, err := os.ReadFile(o.Checkpoint)
		if err != nil {
			return err
		}
		return os.WriteFile(copied, content, 0o600)
	}, o)
	require.NoError(t, err)
	return copied
}

func TestRun_repeatsOnlyWhatIsSafe(t *testing.T) {
	server := &heedtest.Server{Respond: func(r heedtest.Request) heedtest.Response {
		switch r.URL {
		case "/reject":
			return heedtest.Response{Status: http.StatusBadRequest}
		case "/fail":
			return heedtest.Response{Status: http.StatusInternalServerError}
		case "/drop":
			return heedtest.Response{Fault: heedtest.Drop}
		}
		return heedtest.Response{}
	}}
	server.Start()
	defer server.Close()
	client := heed.NewClient(&heed.Transport{Base: server.Transport(), Retry: &heed.RetryPolicy{MaxAttempts: 1}})
	item := func(method, path string) func(context.Context) error {
		return func(ctx context.Context) error {
			_ = send(ctx, client, method, server.URL+path, "")
			return nil
		}
	}
	keyed := func(suffix string) func(context.Context) error {
		return func(ctx context.Context) error {
			return send(ctx, client, "POST", server.URL, batch.ItemFrom(ctx).IdempotencyKey+suffix)
		}
	}
	for _, tt := range []struct {
		name                 string
		during               func(context.Context) error
		safe, always, never  bool // is repeated with the policy
		failedSafe, rejected bool // is repeated with RepeatSafe if the item has failed
	}{
		{name: "no request: unknown effects", during: func(context.Context) error { return nil }, always: true},
		{name: "POST of another client", during: func(ctx context.Context) error {
			return send(ctx, server.Client(), "POST", server.URL, "")
		}, always: true},
		{name: "POST with another context", during: func(context.Context) error {
			return send(context.Background(), client, "POST", server.URL, "")
		}, always: true},
		{name: "GET", during: item("GET", ""), safe: true, always: true, failedSafe: true},
		{name: "PUT", during: item("PUT", "/fail"), safe: true, always: true, failedSafe: true},
		{name: "POST", during: item("POST", ""), always: true},
		{name: "POST, 500", during: item("POST", "/fail"), always: true},
		{name: "POST, no response", during: item("POST", "/drop"), always: true},
		{name: "POST, rejected", during: item("POST", "/reject"), always: true, failedSafe: true},
		{name: "PATCH", during: item("PATCH", ""), always: true},
		{name: "POST with key", during: keyed(""), safe: true, always: true, failedSafe: true},
		{name: "POST with key and suffix", during: keyed("-2"), safe: true, always: true, failedSafe: true},
		{name: "POST with another key", during: func(ctx context.Context) error {
			return send(ctx, client, "POST", server.URL, "order-17")
		}, always: true},
		{name: "POST that is idempotent", during: func(ctx context.Context) error {
			o := heed.OptionsFrom(ctx)
			o.Idempotent = true
			return send(heed.WithOptions(ctx, o), client, "POST", server.URL, "")
		}, safe: true, always: true, failedSafe: true},
		{name: "POST with and without key", during: func(ctx context.Context) error {
			return errors.Join(keyed("")(ctx), item("POST", "")(ctx))
		}, always: true},
		{name: "POST to a closed port", during: func(ctx context.Context) error {
			_ = send(ctx, heed.NewClient(&heed.Transport{Retry: &heed.RetryPolicy{MaxAttempts: 1}}), "POST", "http://127.0.0.1:1", "")
			return nil
		}, always: true, failedSafe: true},
	} {
		for policy, want := range map[batch.Repeat]bool{batch.RepeatSafe: tt.safe, batch.RepeatAlways: tt.always, batch.RepeatNever: tt.never} {
			o := batch.Options{Repeat: policy}
			o.Checkpoint = killed(t, o, tt.during)
			report, err := batch.Run(t.Context(), upTo(1), func(ctx context.Context, _ int) error {
				if !batch.ItemFrom(ctx).Repeated {
					return errors.New("not marked")
				}
				return nil
			}, o)
			if want {
				require.NoError(t, err, "%s, %v", tt.name, policy)
				require.Equal(t, 1, report.Done)
				continue
			}
			require.ErrorIs(t, err, batch.ErrInterrupted, "%s, %v", tt.name, policy)
			require.ErrorIs(t, err, batch.ErrItems)
			require.Equal(t, 1, report.Unknown)
		}
		o := batch.Options{Checkpoint: checkpointIn(t)}
		_, err := batch.Run(t.Context(), upTo(1), func(ctx context.Context, _ int) error {
			_ = tt.during(ctx)
			return errors.New("fault")
		}, o)
		require.ErrorContains(t, err, "fault")
		report, err := batch.Run(t.Context(), upTo(1), func(context.Context, int) error { return nil }, o)
		if tt.failedSafe {
			require.NoError(t, err, tt.name)
			continue
		}
		require.ErrorContains(t, err, "failed in an earlier process and not repeated: fault", tt.name)
		require.Equal(t, 1, report.Failed)
	}
}

func TestRun_doesNotRepeatWhenTheServerHasForgottenTheKey(t *testing.T) {
	for _, tt := range []struct {
		lifetime, after time.Duration
		repeated        bool
	}{
		{0, 23 * time.Hour, true},
		{0, 25 * time.Hour, false},
		{time.Hour, 61 * time.Minute, false},
		{-1, 1000 * time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := new(heedtest.Server)
			server.StartInMemory()
			defer server.Close()
			client := heed.NewClient(&heed.Transport{Base: server.Transport()})
			o := batch.Options{KeyLifetime: tt.lifetime}
			o.Checkpoint = killed(t, o, func(ctx context.Context) error {
				return send(ctx, client, "POST", server.URL, batch.ItemFrom(ctx).IdempotencyKey)
			})
			client.CloseIdleConnections()
			time.Sleep(tt.after)
			_, err := batch.Run(t.Context(), upTo(1), func(context.Context, int) error { return nil }, o)
			require.Equal(t, tt.repeated, err == nil, "%v: %v", tt, err)
		})
	}
}

// An item that failed with a key is repeated while the server remembers the key. Later its error is
// reported again.
func TestRun_reportsTheErrorAgainWhenTheKeyIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &heedtest.Server{Respond: func(heedtest.Request) heedtest.Response { return heedtest.Response{Status: 500} }}
		server.StartInMemory()
		defer server.Close()
		client := heed.NewClient(&heed.Transport{Base: server.Transport(), Retry: &heed.RetryPolicy{MaxAttempts: 1}})
		defer client.CloseIdleConnections()
		o := batch.Options{Checkpoint: checkpointIn(t)}
		fail := func(ctx context.Context, _ int) error {
			_ = send(ctx, client, "POST", server.URL, batch.ItemFrom(ctx).IdempotencyKey)
			return errors.New("fault")
		}
		for range 2 { // it is repeated
			_, err := batch.Run(t.Context(), upTo(1), fail, o)
			require.ErrorContains(t, err, "fault")
		}
		time.Sleep(25 * time.Hour)
		_, err := batch.Run(t.Context(), upTo(1), fail, o)
		require.ErrorIs(t, err, batch.ErrItems)
		require.ErrorContains(t, err, "failed in an earlier process and not repeated: fault")
		require.Len(t, server.Requests(), 2)
	})
}

func TestRun_pausesWhenTheServerStatesALongWait(t *testing.T) {
	for name, tt := range map[string]struct {
		response heedtest.Response
		wait     time.Duration
	}{
		"Retry-After": {heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"1200"}}}, 20 * time.Minute},
		"reset":       {heedtest.Response{Status: 429, Header: http.Header{"X-Ratelimit-Limit": {"5"}, "X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"900"}}}, 15 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			var open atomic.Int64 // when the server accepts requests, as Unix time
			server := &heedtest.Server{Respond: func(r heedtest.Request) heedtest.Response {
				now := time.Now().Unix()
				if open.CompareAndSwap(0, now+int64(tt.wait/time.Second)) || now < open.Load() {
					return tt.response
				}
				return heedtest.Response{}
			}}
			server.StartInMemory()
			defer server.Close()
			client := heed.NewClient(&heed.Transport{Base: server.Transport()})
			defer client.CloseIdleConnections()
			var paused atomic.Bool
			report, err := batch.Run(t.Context(), upTo(30), func(ctx context.Context, i int) error {
				if i < 5 {
					return nil
				}
				return send(ctx, client, "GET", server.URL, "")
			}, batch.Options{Workers: 3, Progress: func(p batch.Progress) { paused.Store(paused.Load() || !p.PausedUntil.IsZero()) }})
			require.NoError(t, err, name)
			require.Equal(t, 30, report.Done)
			require.True(t, paused.Load())
			require.InDelta(t, tt.wait.Seconds(), report.Paused.Seconds(), 5, name)
			require.InDelta(t, tt.wait.Seconds(), report.Elapsed.Seconds(), 60, name)
			require.LessOrEqual(t, len(server.Requests()), 25+3, name)
		})
	}
}

func TestRun_endsIfThePauseIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &heedtest.Server{Respond: func(heedtest.Request) heedtest.Response {
			return heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"7200"}}}
		}}
		server.StartInMemory()
		defer server.Close()
		client := heed.NewClient(&heed.Transport{Base: server.Transport()})
		defer client.CloseIdleConnections()
		o := batch.Options{Workers: 3, MaxPause: time.Hour, Checkpoint: checkpointIn(t)}
		report, err := batch.Run(t.Context(), upTo(10), func(ctx context.Context, _ int) error {
			return send(ctx, client, "GET", server.URL, "")
		}, o)
		var pause *batch.PauseError
		require.ErrorAs(t, err, &pause)
		require.Greater(t, time.Until(pause.Until), time.Hour)
		require.Zero(t, report.Failed)
		require.Positive(t, report.Interrupted)
		report, err = batch.Run(t.Context(), upTo(10), func(context.Context, int) error { return nil }, o)
		require.NoError(t, err)
		require.Equal(t, 10, report.Done)
	})
}

// An item that has sent a request that must not be repeated fails instead of being repeated
// after a pause.
func TestRun_doesNotRepeatAnUnsafeItemAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &heedtest.Server{Respond: func(r heedtest.Request) heedtest.Response {
			if r.Method == "GET" {
				return heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"1200"}}}
			}
			return heedtest.Response{}
		}}
		server.StartInMemory()
		defer server.Close()
		client := heed.NewClient(&heed.Transport{Base: server.Transport()})
		defer client.CloseIdleConnections()
		report, err := batch.Run(t.Context(), upTo(1), func(ctx context.Context, _ int) error {
			if err := send(ctx, client, "POST", server.URL+"/a", ""); err != nil {
				return err
			}
			return send(ctx, client, "GET", server.URL+"/b", "")
		}, batch.Options{})
		require.ErrorIs(t, err, batch.ErrItems)
		require.Equal(t, 1, report.Failed)
		require.Len(t, server.Requests(), 2)
	})
}

func TestRun_aPauseEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		report, err := batch.Run(ctx, upTo(10), func(context.Context, int) error {
			return &throttle.RejectedError{Decision: throttle.Decision{Wait: time.Hour}, Reason: heed.ErrMaxWait}
		}, batch.Options{Repeat: batch.RepeatAlways}) // it sends no request: its effects are unknown
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Minute, time.Since(start))
		require.Zero(t, report.Failed)
	})
}

// A limit that never admits an item does not make the job pause again and again.
func TestRun_anItemFailsAfterManyPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		report, err := batch.Run(t.Context(), upTo(1), func(context.Context, int) error {
			calls++
			return fmt.Errorf("wrapped: %w", heed.ErrMaxWait)
		}, batch.Options{Repeat: batch.RepeatAlways}) // it sends no request: its effects are unknown
		require.ErrorIs(t, err, heed.ErrMaxWait)
		require.Equal(t, 101, calls)
		require.Equal(t, 100*time.Minute, report.Paused)
	})
}

func TestRun_interactiveCallsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(heedtest.Server)
		server.StartInMemory()
		defer server.Close()
		limit := throttle.NewTokenBucket(throttle.PerSecond(1).WithBurst(1))
		client := heed.NewClient(&heed.Transport{Base: server.Transport(), Limiter: limit})
		defer client.CloseIdleConnections()
		var job sync.WaitGroup
		job.Go(func() {
			_, _ = batch.Run(t.Context(), upTo(60), func(ctx context.Context, _ int) error {
				return send(ctx, client, "GET", server.URL, "")
			}, batch.Options{Workers: 60})
		})
		time.Sleep(20500 * time.Millisecond)
		start := time.Now()
		require.NoError(t, send(t.Context(), client, "GET", server.URL, ""))
		require.LessOrEqual(t, time.Since(start), time.Second)
		job.Wait()
	})
}

func TestRun_setsThePriority(t *testing.T) {
	inherited := heed.WithOptions(t.Context(), heed.RequestOptions{Priority: 7, Tenant: "t"})
	for _, tt := range []struct {
		ctx      context.Context
		priority int
		want     heed.RequestOptions
	}{
		{t.Context(), 0, heed.RequestOptions{Priority: batch.DefaultPriority}},
		{t.Context(), 3, heed.RequestOptions{Priority: 3}},
		{inherited, 0, heed.RequestOptions{Priority: 7, Tenant: "t"}},
		{inherited, -3, heed.RequestOptions{Priority: -3, Tenant: "t"}},
	} {
		var got heed.RequestOptions
		_, err := batch.Run(tt.ctx, upTo(1), func(ctx context.Context, _ int) error {
			got = heed.OptionsFrom(ctx)
			return nil
		}, batch.Options{Priority: tt.priority})
		require.NoError(t, err)
		require.Equal(t, tt.want, got)
	}
}

func TestRun_panicsOnTheGoroutineOfItsCaller(t *testing.T) {
	path := checkpointIn(t)
	fault := errors.New("fault")
	var ended atomic.Int64
	run := func(v any) {
		_, _ = batch.Run(t.Context(), upTo(100), func(ctx context.Context, i int) error {
			if i == 2 {
				panic(v)
			}
			if i < 2 {
				return nil
			}
			<-ctx.Done() // a panic ends the others
			ended.Add(1)
			return ctx.Err()
		}, batch.Options{Workers: 4, Checkpoint: path, Repeat: batch.RepeatAlways}) // it sends no request: its effects are unknown
	}
	value := recovered(func() { run(fault) })
	require.IsType(t, &batch.PanicError{}, value)
	panicked := value.(*batch.PanicError)
	require.Equal(t, 2, panicked.Index)
	require.ErrorIs(t, panicked, fault)
	require.Contains(t, panicked.Error(), "panic in item 2: fault")
	require.Contains(t, string(panicked.Stack), "run_test.go")
	require.LessOrEqual(t, ended.Load(), int64(3))
	require.Equal(t, "x", recovered(func() { run("x") }).(*batch.PanicError).Value)

	report, err := batch.Run(t.Context(), upTo(100), func(context.Context, int) error { return nil }, batch.Options{Checkpoint: path, Repeat: batch.RepeatAlways})
	require.NoError(t, err)
	require.Equal(t, 100, report.Done)
	require.Equal(t, 2, report.Resumed)
}

// recovered returns the value with which f panics.
func recovered(f func()) (value any) {
	defer func() { value = recover() }()
	f()
	return nil
}

func TestRun_otherPanicsAndGoexit(t *testing.T) {
	path := checkpointIn(t)
	o := batch.Options{Checkpoint: path, Workers: 2}
	ok := func(context.Context, int) error { return nil }

	o.Progress = func(batch.Progress) { panic("progress") }
	panicked := recovered(func() { _, _ = batch.Run(t.Context(), upTo(10), ok, o) }).(*batch.PanicError)
	require.Equal(t, -1, panicked.Index)
	require.Contains(t, panicked.Error(), "panic in Options.Progress: progress")

	o.Progress = nil
	items := func(yield func(int) bool) {
		yield(0)
		panic("items")
	}
	require.Equal(t, "items", recovered(func() { _, _ = batch.Run(t.Context(), items, ok, o) }))

	require.Equal(t, "key", recovered(func() {
		_, _ = batch.Run(t.Context(), upTo(10), ok, batch.Options{Checkpoint: checkpointIn(t), ItemKey: func(any) string { panic("key") }})
	}))

	returned := true
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = batch.Run(t.Context(), upTo(10), func(_ context.Context, i int) error {
			if i == 3 {
				runtime.Goexit()
			}
			return nil
		}, batch.Options{})
		returned = false
	}()
	<-done
	require.True(t, returned, "Run returned")

	_, err := batch.Run(t.Context(), upTo(10), ok, o) // the checkpoint is not locked
	require.NoError(t, err)
}

func TestRun_rejectsTheCheckpointOfAnotherJob(t *testing.T) {
	path := checkpointIn(t)
	ok := func(context.Context, string) error { return nil }
	items := func(all ...string) iter.Seq[string] { return slices.Values(all) }
	_, err := batch.Run(t.Context(), items("a", "b"), ok, batch.Options{Checkpoint: path, Job: "one", Workers: 1})
	require.NoError(t, err)

	_, err = batch.Run(t.Context(), items("a", "b"), ok, batch.Options{Checkpoint: path, Job: "two"})
	require.ErrorIs(t, err, batch.ErrOtherJob)
	require.ErrorContains(t, err, `"one"`)
	report, err := batch.Run(t.Context(), items("a", "x"), ok, batch.Options{Checkpoint: path, Job: "one"})
	require.ErrorIs(t, err, batch.ErrOtherJob)
	require.ErrorContains(t, err, "item 1")
	require.Equal(t, 1, report.Done)
	_, err = batch.Run(t.Context(), items("A", "B", "c"), ok, batch.Options{Checkpoint: path, Job: "one", ItemKey: func(item any) string { return strings.ToLower(item.(string)) }})
	require.NoError(t, err)
	_, _, err = batch.Map(t.Context(), items("a", "b"), func(context.Context, string) (int, error) { return 1, nil }, batch.Options{Checkpoint: path, Job: "one"})
	require.ErrorIs(t, err, batch.ErrOtherJob)

	require.NoError(t, os.WriteFile(path, []byte("my thesis"), 0o600))
	_, err = batch.Run(t.Context(), items("a"), ok, batch.Options{Checkpoint: path})
	require.ErrorIs(t, err, batch.ErrDamaged)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "my thesis", string(content))

	_, err = batch.Run(t.Context(), items("a"), ok, batch.Options{Checkpoint: filepath.Join(path, "no", "folder")})
	require.Error(t, err)
	_, err = batch.Run(t.Context(), slices.Values([]func(){nil}), func(context.Context, func()) error { return nil }, batch.Options{Checkpoint: checkpointIn(t)})
	require.ErrorContains(t, err, "set Options.ItemKey")
}

func TestRun_oneProcessAtATimeUsesACheckpoint(t *testing.T) {
	o := batch.Options{Checkpoint: checkpointIn(t)}
	_, err := batch.Run(t.Context(), upTo(1), func(ctx context.Context, _ int) error {
		_, err := batch.Run(ctx, upTo(1), nil, o)
		return err
	}, o)
	require.ErrorIs(t, err, batch.ErrLocked)
}

func TestRun_rejectsInvalidOptions(t *testing.T) {
	for _, o := range []batch.Options{{Workers: -1}, {Total: -1}, {ProgressInterval: -1}, {MaxFailures: -1}, {MaxPause: -1}, {Repeat: 3}, {Repeat: -1}} {
		_, err := batch.Run(t.Context(), upTo(1), nil, o)
		require.ErrorContains(t, err, "batch: Options.")
	}
}

func TestMap_returnsValuesInOrderAlsoOfEarlierProcesses(t *testing.T) {
	type value struct{ Square int }
	path := checkpointIn(t) // the function sends no request, so that its effects are unknown to RepeatSafe
	square := func(limit int) func(context.Context, int) (value, error) {
		return func(_ context.Context, i int) (value, error) {
			if i >= limit {
				return value{}, errors.New("fault")
			}
			return value{i * i}, nil
		}
	}
	values, _, err := batch.Map(t.Context(), upTo(10), square(5), batch.Options{Checkpoint: path, Repeat: batch.RepeatAlways})
	require.ErrorIs(t, err, batch.ErrItems)
	require.Len(t, values, 5)
	values, report, err := batch.Map(t.Context(), upTo(10), square(10), batch.Options{Checkpoint: path, Repeat: batch.RepeatAlways})
	require.NoError(t, err)
	require.Equal(t, 5, report.Resumed)
	for i, v := range values {
		require.Equal(t, i*i, v.Square)
	}
	require.Len(t, values, 10)
	values, _, err = batch.Map(t.Context(), upTo(3), square(10), batch.Options{})
	require.NoError(t, err)
	require.Equal(t, []value{{0}, {1}, {4}}, values)

	stored, _, err := batch.Map(t.Context(), upTo(3), func(context.Context, int) (any, error) { return func() {}, nil }, batch.Options{Checkpoint: checkpointIn(t)})
	require.ErrorContains(t, err, "the value cannot be stored")
	require.Empty(t, stored, "the item is not done")
}
