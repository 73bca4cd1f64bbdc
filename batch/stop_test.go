package batch_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
)

// effects counts what a server did for each URL.
type effects struct {
	*heedtest.Server
	client *http.Client
}

// newEffects starts a server in a synctest bubble that takes delay for each request.
func newEffects(t *testing.T, delay time.Duration) effects {
	server := &heedtest.Server{Respond: func(heedtest.Request) heedtest.Response { return heedtest.Response{Delay: delay} }}
	server.StartInMemory()
	t.Cleanup(server.Close)
	client := heed.NewClient(&heed.Transport{Base: server.Transport()})
	t.Cleanup(client.CloseIdleConnections)
	return effects{server, client}
}

// of returns how often the server got the request of each item.
func (e effects) of() map[string]int {
	all := map[string]int{}
	for _, r := range e.Requests() {
		all[r.URL]++
	}
	return all
}

func (e effects) post(ctx context.Context, i int) error {
	return send(ctx, e.client, "POST", fmt.Sprint(e.URL, "/", i), "")
}

// A job that is stopped again and again, by a cancellation or a deadline, does each POST without a
// key once, and none has an unknown outcome.
func TestRun_stopsWithoutUnknownOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEffects(t, 5*time.Millisecond)
		o := batch.Options{Workers: 5, Checkpoint: checkpointIn(t)}
		interrupted := errors.New("interrupted")
		stops, items := 200, 2000
		if testing.Short() {
			stops, items = 60, 700
		}
		for i := range stops {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(3+i%7)*time.Millisecond, interrupted)
			if i%2 == 0 {
				ctx = withoutDeadline{ctx}
			}
			report, err := batch.Run(ctx, upTo(items), e.post, o)
			cancel()
			require.Error(t, err)
			require.NotErrorIs(t, err, batch.ErrItems)
			require.Zero(t, report.Failed+report.Unknown+report.Interrupted, i)
			require.Less(t, report.Elapsed, time.Second)
		}
		report, err := batch.Run(t.Context(), upTo(items), e.post, o)
		require.NoError(t, err)
		require.Equal(t, items, report.Done)
		require.Len(t, e.of(), items)
		require.Len(t, e.Requests(), items, "none was done twice")
	})
}

// After StopTimeout the contexts of the items end. Only those have an unknown outcome whose
// requests the server may have got: not those that waited for a limit, for a connection, or that
// began too late.
func TestRun_whatWasNotSentIsNotUnknown(t *testing.T) {
	for name, tt := range map[string]struct {
		timeout time.Duration
		took    time.Duration // from the cancellation to the end
		do      func(ctx context.Context, e effects) error
		sent    bool
	}{
		"in flight":          {0, 10 * time.Second, func(ctx context.Context, e effects) error { return e.post(ctx, 0) }, true},
		"in flight, 1 s":     {time.Second, time.Second, func(ctx context.Context, e effects) error { return e.post(ctx, 0) }, true},
		"in flight, no time": {-1, 0, func(ctx context.Context, e effects) error { return e.post(ctx, 0) }, true},
		"waits for a connection": {0, 10 * time.Second, func(ctx context.Context, e effects) error {
			base := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(time.Minute) // also after the end of the request
				return nil, errors.New("no connection")
			}}
			return send(ctx, heed.NewClient(&heed.Transport{Base: base}), "POST", e.URL, "")
		}, false},
		"begins in the last second": {0, 9500 * time.Millisecond, func(ctx context.Context, e effects) error {
			if err := send(ctx, e.client, "GET", e.URL+"/get", ""); err != nil {
				return err
			}
			time.Sleep(5500 * time.Millisecond)
			return e.post(ctx, 0)
		}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEffects(t, time.Hour)
			e.Respond = func(r heedtest.Request) heedtest.Response {
				if r.Method == "GET" {
					return heedtest.Response{Delay: 5 * time.Second}
				}
				return heedtest.Response{Delay: time.Hour}
			}
			o := batch.Options{Checkpoint: checkpointIn(t), StopTimeout: tt.timeout}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			start := time.Now()
			report, err := batch.Run(ctx, upTo(1), func(ctx context.Context, _ int) error { return tt.do(ctx, e) }, o)
			require.ErrorIs(t, err, context.Canceled, name)
			require.Equal(t, 1, report.Interrupted, name)
			require.InDelta(t, tt.took, time.Since(start)-time.Second, float64(time.Millisecond), name)
			require.Equal(t, tt.sent, e.of()["/0"] == 1, name)
			report, err = batch.Run(t.Context(), upTo(1), func(context.Context, int) error { return nil }, o)
			require.Equal(t, tt.sent, err != nil, name)
			if tt.sent {
				require.ErrorIs(t, err, batch.ErrInterrupted, name)
				require.Equal(t, 1, report.Unknown, name)
			}
			time.Sleep(time.Minute) // the Base may still dial
		})
	}
}

// A function that watches the context of Run is interrupted, too, and has not failed.
func TestRun_aFunctionThatWatchesTheContextOfRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var once sync.Once
		report, err := batch.Run(ctx, upTo(10), func(context.Context, int) error {
			once.Do(cancel)
			<-ctx.Done()
			return fmt.Errorf("wrapped: %w", ctx.Err())
		}, batch.Options{Workers: 2})
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, report.Failed)
		require.Positive(t, report.Interrupted)
	})
}
