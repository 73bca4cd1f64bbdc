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
	"github.com/heed-go/heed/internal/explain"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTransport_startJitterSpreadsFirstRequests starts all clients at noon, with a server
// that states a Retry-After of a minute. It logs the maximum number of requests within
// one second.
func TestTransport_startJitterSpreadsFirstRequests(t *testing.T) {
	clients := 3000 // the race detector supports at most 8,128 goroutines
	if testing.Short() {
		clients = 1000
	}
	for _, tt := range []struct {
		name   string
		jitter time.Duration
		seed   func(i int) string
		first  int // maximum number of first requests within a second
		second int
	}{
		{"without Splay", 0, nil, clients, clients},
		{"Splay of a minute", time.Minute, nil, clients / 25, clients / 25},
		{"the same by name", time.Minute, func(i int) string { return fmt.Sprint("device-", i) }, clients / 25, clients / 25},
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
			}
		})
	}
}

// maxPerSecond returns the maximum number of instants within a second.
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

// deviceSeed has a fraction of about a half.
const deviceSeed = "device-13"

// TestTransport_startJitterDelaysOnlyFirstRequests checks that only requests before the
// end of the start delay wait, all until the same instant.
func TestTransport_startJitterDelaysOnlyFirstRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, delay := newScript(200), backoff.OffsetFor(deviceSeed).In(time.Minute)
		tr := &Transport{Base: s, StartJitter: time.Minute, StartSeed: deviceSeed}
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
				assert.Equal(t, in < delay, ok)
				assert.Equal(t, max(delay-in, 0), info.BackoffWait)
			})
		}
		wg.Wait()
		var at []time.Duration
		for _, r := range s.got {
			at = append(at, r.at)
		}
		require.Equal(t, []time.Duration{delay, delay, 45 * time.Second}, at)
	})
}

// TestTransport_startJitterBeyondTheDeadlineFails checks that a request that cannot wait
// for the end of the start delay fails immediately.
func TestTransport_startJitterBeyondTheDeadlineFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(200)
		tr := &Transport{Base: s, StartJitter: time.Minute, StartSeed: deviceSeed}
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
			require.ErrorContains(t, err, "gave up: heed: Transport.StartJitter delays the first request by another "+explain.DurationUp(backoff.OffsetFor(deviceSeed).In(time.Minute)))
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
