package heed

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTransport_startJitterSpreadsFirstRequests has clients that all start at noon and are all told
// to come back in a minute. It prints how many come within one second.
func TestTransport_startJitterSpreadsFirstRequests(t *testing.T) {
	const clients = 3000 // the race detector has room for 8,128 goroutines
	for _, tt := range []struct {
		name   string
		jitter time.Duration
		seed   func(i int) backoff.Offset
		first  int // at most
		second int
	}{
		{"without Splay", 0, nil, clients, clients},
		{"Splay of a minute", time.Minute, nil, clients / 25, clients / 25},
		{"the same by name", time.Minute, func(i int) backoff.Offset { return backoff.OffsetFor(fmt.Sprint("device-", i)) }, clients / 25, clients / 25},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			var mu sync.Mutex
			var first, second []time.Duration
			var wg sync.WaitGroup
			for i := range clients {
				wg.Go(func() {
					s := newScript(response{503, "", []string{"Retry-After", "60"}}, 200)
					tr := &Transport{Base: s, StartJitter: tt.jitter}
					if tt.seed != nil {
						tr.StartSeed = tt.seed(i)
					}
					resp, err := get(t, tr)
					if err != nil || resp.StatusCode != 200 || s.sent() != 2 {
						t.Error(err, resp, s.sent())
						return
					}
					mu.Lock()
					defer mu.Unlock()
					first, second = append(first, s.got[0].at), append(second, s.got[1].at)
				})
			}
			wg.Wait()
			a, b := maxPerSecond(first), maxPerSecond(second)
			t.Logf("%-17s  %d clients: largest crowd within 1 s: %4d at 12:00, %4d at 12:01; last at %v", tt.name, clients, a, b, time.Since(start).Round(time.Second))
			require.LessOrEqual(t, a, tt.first)
			require.LessOrEqual(t, b, tt.second)
			if tt.jitter == 0 {
				require.Equal(t, clients, a, "what Splay is for")
				require.Greater(t, b, clients/2)
			}
		})
	}
}

// maxPerSecond returns the most instants within a second.
func maxPerSecond(at []time.Duration) (most int) {
	slices.Sort(at)
	for i, j := 0, 0; i < len(at); i++ {
		for j < len(at) && at[j] < at[i]+time.Second {
			j++
		}
		most = max(most, j-i)
	}
	return most
}

// Only what comes before the slot waits, and all of it for the same instant.
func TestTransport_startJitterDelaysOnlyFirstRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(200)
		tr := &Transport{Base: s, StartJitter: time.Minute, StartSeed: 1 << 63}
		var wg sync.WaitGroup
		for _, in := range []time.Duration{0, 10 * time.Second, 45 * time.Second} {
			wg.Go(func() {
				time.Sleep(in)
				resp, err := get(t, tr)
				if err != nil {
					t.Error(err)
					return
				}
				info, ok := InfoFrom(resp)
				assert.Equal(t, in < 30*time.Second, ok)
				assert.Equal(t, max(30*time.Second-in, 0), info.BackoffWait)
			})
		}
		wg.Wait()
		var at []time.Duration
		for _, r := range s.got {
			at = append(at, r.at)
		}
		require.Equal(t, []time.Duration{30 * time.Second, 30 * time.Second, 45 * time.Second}, at)
	})
}

// Who cannot wait for the slot is told so at once.
func TestTransport_startJitterBeyondTheDeadlineFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(200)
		tr := &Transport{Base: s, StartJitter: time.Minute, StartSeed: 1 << 63}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for why, ctx := range map[error]context.Context{
			context.DeadlineExceeded: ctx,
			ErrMaxWait:               WithOptions(t.Context(), RequestOptions{MaxWait: time.Second}),
		} {
			req, body := request(t, "POST", "body"), &opaque{}
			req.Body = body
			_, err := tr.RoundTrip(req.WithContext(ctx))
			require.ErrorIs(t, err, why)
			require.ErrorContains(t, err, "before it was sent: heed: Transport.StartJitter delays the first request by another 30s")
			require.Equal(t, 1, body.closed)
		}
		require.Zero(t, time.Since(s.start))

		gone, cancel2 := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel2)
		_, err := tr.RoundTrip(request(t, "GET", "").WithContext(gone))
		require.Equal(t, context.Canceled, err)
		require.Equal(t, time.Second, time.Since(s.start))
		require.Zero(t, s.sent())
	})
}
