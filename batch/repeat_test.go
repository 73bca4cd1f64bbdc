package batch_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
)

// TestRun_repeatsWithinAProcessOnlyAsRepeatStates has items with an effect before a request,
// while the server states a wait that is too long: RepeatNever never calls the function a
// second time, and the Report counts what other policies repeat.
func TestRun_repeatsWithinAProcessOnlyAsRepeatStates(t *testing.T) {
	for name, tt := range map[string]struct {
		o        batch.Options
		observed bool // a request uses the context of the item
		failed   int
		calls    int // of each of the first two items
	}{
		"RepeatNever":                              {batch.Options{Repeat: batch.RepeatNever}, true, 2, 1},
		"RepeatNever with a checkpoint":            {batch.Options{Repeat: batch.RepeatNever, Checkpoint: "checkpoint"}, true, 2, 1},
		"RepeatSafe":                               {batch.Options{}, true, 0, 2},
		"RepeatSafe without an observed request":   {batch.Options{}, false, 2, 1},
		"RepeatAlways without an observed request": {batch.Options{Repeat: batch.RepeatAlways}, false, 0, 2},
		"RepeatAlways with a checkpoint":           {batch.Options{Repeat: batch.RepeatAlways, Checkpoint: "checkpoint"}, true, 0, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			long := heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"1200"}}}
			server := &heedtest.Server{Respond: heedtest.Script(long, long)}
			server.StartInMemory()
			defer server.Close()
			client := heed.NewClient(&heed.Transport{Base: server.Transport()})
			defer client.CloseIdleConnections()
			var mu sync.Mutex
			calls := map[int]int{}
			o := tt.o
			o.Workers = 2
			if o.Checkpoint != "" {
				o.Checkpoint = checkpointIn(t)
			}
			report, err := batch.Run(t.Context(), upTo(10), func(ctx context.Context, i int) error {
				time.Sleep(time.Second) // both workers begin an item
				mu.Lock()
				calls[i]++
				first := i < 2 && calls[i] == 1
				mu.Unlock()
				if !tt.observed && first {
					return &throttle.RejectedError{Decision: throttle.Decision{Wait: 20 * time.Minute}, Reason: heed.ErrMaxWait}
				} else if !tt.observed {
					return nil
				}
				return send(ctx, client, "GET", server.URL, "")
			}, o)
			require.Equal(t, tt.failed > 0, err != nil, name)
			require.Equal(t, tt.failed, report.Failed, name)
			require.Equal(t, 10-tt.failed, report.Done, "%s: the others wait until the server accepts requests", name)
			require.InDelta(t, 1200, report.Paused.Seconds(), 60, name)
			repeated := 0
			for i := range 10 {
				want := 1
				if i < 2 {
					want = tt.calls
				}
				require.Equal(t, want, calls[i], "%s: item %d", name, i)
				if calls[i] > 1 {
					repeated++
				}
			}
			require.Equal(t, repeated, report.Repeated, name)
		})
	}
}
