package bandwidth_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// readFor reads r with a buffer of the given size until end, and returns the number of bytes.
func readFor(r io.Reader, size int, end time.Time) (n int64) {
	buf := make([]byte, size)
	for {
		m, err := r.Read(buf)
		if time.Now().After(end) || err != nil {
			return n
		}
		n += int64(m)
	}
}

// jain returns the fairness index of Jain, which is 1 if all values are equal.
func jain(values []int64) float64 {
	var sum, squares float64
	for _, v := range values {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	return sum * sum / (float64(len(values)) * squares)
}

// downloadAll downloads with one stream for each size for 5 s. The tenant of a stream is the
// value of the header Tenant. It returns the bytes that each stream got.
func downloadAll(t *testing.T, rt *bandwidth.Transport, sizes []int, tenants []string) []int64 {
	s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.Copy(w, zeros{}) }))
	defer s.Close()
	rt.Base = s.Transport()
	got, end := make([]int64, len(sizes)), time.Now().Add(5*time.Second)
	var all sync.WaitGroup
	for i, size := range sizes {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
			if tenants != nil {
				req.Header.Set("Tenant", tenants[i])
			}
			resp, err := rt.RoundTrip(req)
			if assert.NoError(t, err) {
				defer resp.Body.Close()
				got[i] = readFor(resp.Body, size, end)
			}
		})
	}
	all.Wait()
	return got
}

func TestPacing_streamsShareALimitEvenly(t *testing.T) {
	for name, sizes := range map[string][]int{
		"equal reads":   {32 << 10, 32 << 10, 32 << 10, 32 << 10},
		"unequal reads": {512, 4 << 10, 32 << 10, 256 << 10},
		"two":           {512, 32 << 10},
		"many":          make([]int, 50), // of 512 bytes
	} {
		for i := range sizes {
			sizes[i] = max(sizes[i], 512)
		}
		t.Run(name, func(t *testing.T) {
			if testing.Short() && (name == "equal reads" || name == "two") {
				t.Skip("only make test-long runs it")
			}
			synctest.Test(t, func(t *testing.T) {
				got := downloadAll(t, &bandwidth.Transport{Download: newBucket(tenMB)}, sizes, nil)
				require.GreaterOrEqual(t, jain(got), 0.99, "%v", got)
				var sum int64
				for _, n := range got {
					sum += n
				}
				require.InEpsilon(t, 5*tenMB, sum, 0.02)
			})
		})
	}
}

// TestPacing_tenantsShareALimitEvenly checks that a tenant gains nothing by more streams, and
// that a stream without a tenant is one of its own.
func TestPacing_tenantsShareALimitEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &bandwidth.Transport{Download: newBucket(tenMB), Tenant: func(r *http.Request) string { return r.Header.Get("Tenant") }}
		sizes := []int{32 << 10, 32 << 10, 32 << 10, 32 << 10, 512, 32 << 10, 4 << 10}
		got := downloadAll(t, rt, sizes, []string{"many", "many", "many", "many", "one", "", ""})
		many := got[0] + got[1] + got[2] + got[3]
		require.GreaterOrEqual(t, jain([]int64{many, got[4], got[5], got[6]}), 0.99, "%v", got)
	})
}

// TestPacing_smallChunksOvertakeLargeStreams checks the delay of small events beside streams
// that use all of the limit.
func TestPacing_smallChunksOvertakeLargeStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, q := newBucket(tenMB), new(queue.Queue)
		rt := func(r io.Reader) *bandwidth.Transport {
			return &bandwidth.Transport{Base: responding(r), Download: limit, Queue: q}
		}
		end := time.Now().Add(5 * time.Second)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() { readFor(downloadWith(t.Context(), t, rt(zeros{})), 32<<10, end) })
		}
		r, w := io.Pipe()
		events, event := downloadWith(t.Context(), t, rt(r)), make([]byte, 100)
		for time.Now().Before(end) {
			time.Sleep(100 * time.Millisecond)
			begin := time.Now()
			go w.Write(event)
			_, err := io.ReadFull(events, event)
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(begin), 25*time.Millisecond, "five chunks")
		}
		all.Wait()
	})
}

// A large download gets its share beside callers with many short ones, each a stream of its own: with
// the defaults, each stream that waits at the same time has one share.
func TestPacing_largeDownloadBesideShortOnes(t *testing.T) {
	for _, short := range []int{4, 0, 1, 8} {
		if short != 4 && testing.Short() {
			t.Skip("only make test-long runs the other ones")
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			rt := &bandwidth.Transport{
				Download: throttle.NewTokenBucket(throttle.Limit{Count: 100_000, Per: time.Second, Burst: 2000}),
				Base: roundTripper(func(r *http.Request) (*http.Response, error) {
					body := io.Reader(zeros{})
					if r.URL.Path == "/short" {
						body = io.LimitReader(body, 400)
					}
					return &http.Response{StatusCode: http.StatusOK, ContentLength: -1, Body: io.NopCloser(body), Request: r}, nil
				}),
			}
			get := func(path string) (n int64, err error) {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example.com"+path, nil)
				if err != nil {
					return 0, err
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					return 0, err
				}
				defer resp.Body.Close()
				return io.Copy(io.Discard, resp.Body)
			}
			var wg sync.WaitGroup
			for range short {
				wg.Go(func() {
					for ctx.Err() == nil {
						_, _ = get("/short")
					}
				})
			}
			var large int64
			wg.Go(func() {
				var err error
				large, err = get("/large")
				assert.ErrorIs(t, err, context.Canceled, "it does not end before")
			})
			minutes := 3
			if testing.Short() {
				minutes = 1
			}
			time.Sleep(time.Duration(minutes) * time.Minute)
			cancel()
			wg.Wait()
			share := int64(minutes * 60 * 100_000 / (1 + short))
			require.GreaterOrEqual(t, large, share*9/10, "beside %d callers", short)
		})
	}
}
