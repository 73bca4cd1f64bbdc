package batch_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
)

// NextTry is the end of the delay after a failure, and zero while the request is sent again.
// LastError remains until a request leaves.
func TestOutbox_stateWhileARequestIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		r := newRig(t, func(heedtest.Request) heedtest.Response {
			if n.Add(1) < 3 {
				return heedtest.Response{Status: 502}
			}
			return heedtest.Response{Delay: 10 * time.Second}
		})
		r.client = r.Client() // without retries
		defer r.client.CloseIdleConnections()
		o := r.open(t, batch.OutboxConfig{Backoff: backoff.Constant(time.Minute)})
		start := time.Now()
		r.submit(t, o, "POST", "/")
		for _, s := range []struct {
			at      time.Duration
			next    time.Duration // since start; 0: the zero time
			failed  bool
			waiting int
		}{
			{30 * time.Second, time.Minute, true, 1},
			{90 * time.Second, 2 * time.Minute, true, 1},
			{125 * time.Second, 0, true, 1}, // in flight
			{131 * time.Second, 0, false, 0},
		} {
			time.Sleep(s.at - time.Since(start))
			state := o.State()
			require.Equal(t, s.waiting, state.Requests, s.at)
			require.Equal(t, s.failed, state.LastError != nil, s.at)
			if s.next == 0 {
				require.Zero(t, state.NextTry, s.at)
			} else {
				require.Equal(t, start.Add(s.next), state.NextTry, s.at)
			}
			require.Equal(t, s.waiting > 0, state.Bytes > 0, s.at)
		}
		require.Len(t, r.Requests(), 3)
	})
}

// A server error counts as an attempt, and the default is 10 attempts.
func TestOutbox_leavesAfterTenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(heedtest.Request) heedtest.Response { return heedtest.Response{Status: 500} })
		r.client = r.Client()
		defer r.client.CloseIdleConnections()
		o := r.open(t, batch.OutboxConfig{})
		r.submit(t, o, "POST", "/")
		require.NoError(t, o.Drain(t.Context()))
		require.Len(t, r.Requests(), 10)
		require.Equal(t, []string{"1 500 the serv"}, r.got())
	})
}

// The statuses at the ends of the ranges that do not count as attempts.
func TestOutbox_statusesThatCount(t *testing.T) {
	for status, requests := range map[int]int{
		400: 1, 404: 1, 407: 1, 410: 1, 499: 1,
		500: 2, 501: 2, 505: 2, 519: 2, 525: 2, 599: 2,
		502: 5, 520: 5, 524: 5, 408: 5, 425: 5,
	} {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			r := newRig(t, func(heedtest.Request) heedtest.Response {
				if n.Add(1) == 5 {
					return heedtest.Response{}
				}
				return heedtest.Response{Status: status}
			})
			r.client = r.Client()
			defer r.client.CloseIdleConnections()
			o := r.open(t, batch.OutboxConfig{MaxAttempts: 2})
			r.submit(t, o, "POST", "/")
			require.NoError(t, o.Drain(t.Context()))
			require.Len(t, r.Requests(), requests, status)
		})
	}
}

// Without settings an Outbox accepts a body of one MiB, and 16 MiB in total.
func TestOutbox_defaultBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(heedtest.Request) heedtest.Response { return heedtest.Response{Delay: time.Hour} })
		o := r.open(t, batch.OutboxConfig{})
		submit := func(n int) error {
			req, err := http.NewRequest("PUT", r.URL, strings.NewReader(strings.Repeat("x", n)))
			require.NoError(t, err)
			_, err = o.Submit(req)
			return err
		}
		err := submit(1<<20 + 1)
		require.ErrorIs(t, err, batch.ErrBodyTooLarge)
		require.ErrorContains(t, err, "1048576 bytes")
		for range 15 {
			require.NoError(t, submit(1<<20))
		}
		var full *batch.FullError
		require.ErrorAs(t, submit(1<<20), &full)
		require.Equal(t, 15, full.Requests)
		require.Equal(t, o.State().Bytes, full.Bytes)
		require.EqualValues(t, 16<<20, full.MaxBytes)
		require.Equal(t, 10_000, full.MaxRequests)
		require.NoError(t, submit(1<<19))
		bytes := o.State().Bytes
		require.NoError(t, submit(int(16<<20-bytes)-int(bytes-full.Bytes-1<<19)), "up to the last byte")
		require.InDelta(t, 16<<20, o.State().Bytes, 8)
		require.ErrorIs(t, submit(0), batch.ErrOutboxFull)
	})
}

// An empty method means GET, as in net/http, also after the request was stored.
func TestOutbox_anEmptyMethodIsGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		o := r.open(t, batch.OutboxConfig{})
		req, err := http.NewRequest(http.MethodGet, r.URL+"/", nil)
		require.NoError(t, err)
		req.Method = ""
		_, err = o.Submit(req)
		require.NoError(t, err)
		require.NoError(t, o.Drain(t.Context()))
		require.Equal(t, http.MethodGet, r.Requests()[0].Method)
		require.Empty(t, r.Requests()[0].Header.Get("Idempotency-Key"), "a GET is safe to repeat")
		_, err = o.Close(t.Context())
		require.NoError(t, err)
	})
}
