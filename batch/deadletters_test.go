package batch_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
)

// A token that has expired, and works again after two hours, empties no Outbox: the first request
// stays the first.
func TestOutbox_keepsRequestsWhileATokenIsInvalid(t *testing.T) {
	requests := 200
	if testing.Short() {
		requests = 60
	}
	for _, unkeyed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			r := newRig(t, func(heedtest.Request) heedtest.Response {
				if time.Since(start) < 2*time.Hour {
					return heedtest.Response{Status: 401}
				}
				return heedtest.Response{}
			})
			c := batch.OutboxConfig{Path: filepath.Join(t.TempDir(), "outbox"), MaxAttempts: 1}
			if unkeyed {
				c.IdempotencyKey = func(*http.Request) string { return "" }
			}
			o := r.open(t, c)
			for i := range requests {
				r.submit(t, o, "POST", fmt.Sprint("/", i))
			}
			time.Sleep(time.Hour)
			require.Equal(t, requests, o.State().Requests)
			require.ErrorContains(t, o.State().LastError, "401")
			require.NoError(t, o.Drain(t.Context()))
			got := r.got()
			require.Len(t, got, requests)
			for i, d := range got {
				require.Equal(t, fmt.Sprintf("%d 200", i+1), d)
			}
			urls := r.urls()
			require.Equal(t, slices.Compact(slices.Clone(urls)), slices.Collect(func(yield func(string) bool) {
				for i := range requests {
					yield(fmt.Sprint("/", i))
				}
			}), "in order")
		})
	}
}

// RejectionPasses and the result of Done decide which rejected requests stay.
func TestOutbox_whatDoneReturns(t *testing.T) {
	passes := func(resp *http.Response) bool { return resp.StatusCode == 404 }
	for name, tt := range map[string]struct {
		responses []heedtest.Response // of the first request
		c         batch.OutboxConfig
		actions   []batch.Action
		requests  int
		calls     int // of Done for the first request
	}{
		"Leave":                       {[]heedtest.Response{{Status: 404}}, batch.OutboxConfig{}, []batch.Action{batch.Leave}, 1, 1},
		"Keep":                        {[]heedtest.Response{{Status: 404}, {Status: 404}}, batch.OutboxConfig{}, []batch.Action{batch.Keep, batch.Keep, batch.Leave}, 3, 3},
		"Discard":                     {[]heedtest.Response{{Status: 404}}, batch.OutboxConfig{}, []batch.Action{batch.Discard}, 1, 1},
		"Keep has no effect":          {nil, batch.OutboxConfig{}, []batch.Action{batch.Keep}, 1, 1},
		"passes":                      {[]heedtest.Response{{Status: 404}, {Status: 404}}, batch.OutboxConfig{RejectionPasses: passes}, []batch.Action{batch.Leave}, 3, 1},
		"401 does not pass then":      {[]heedtest.Response{{Status: 401}}, batch.OutboxConfig{RejectionPasses: passes}, []batch.Action{batch.Leave}, 1, 1},
		"Keep after an unknown state": {[]heedtest.Response{{Fault: heedtest.Drop}}, batch.OutboxConfig{IdempotencyKey: func(*http.Request) string { return "" }}, []batch.Action{batch.Keep, batch.Leave}, 2, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(req heedtest.Request) heedtest.Response {
				if req.URL == "/first" && req.N <= len(tt.responses) {
					return tt.responses[req.N-1]
				}
				return heedtest.Response{}
			})
			calls := 0
			c := tt.c
			c.Client = heed.NewClient(&heed.Transport{Base: r.Transport(), Retry: &heed.RetryPolicy{MaxAttempts: 1}})
			defer c.Client.CloseIdleConnections()
			c.Path = filepath.Join(t.TempDir(), "outbox")
			c.Done = func(d batch.Delivery) batch.Action {
				if d.ID != 1 {
					return batch.Leave
				}
				calls++
				return tt.actions[calls-1]
			}
			o := r.open(t, c)
			r.submit(t, o, "POST", "/first")
			r.submit(t, o, "POST", "/second")
			require.NoError(t, o.Drain(t.Context()), name)
			require.Equal(t, append(slices.Repeat([]string{"/first"}, tt.requests), "/second"), r.urls(), name)
			require.Equal(t, tt.calls, calls, name)
		})
	}
}

// What is given up can be listed to the last request, and sent by another Outbox. What may have
// been processed is not sent again.
func TestOutbox_deadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixed := false
		r := newRig(t, func(req heedtest.Request) heedtest.Response {
			switch {
			case fixed:
				return heedtest.Response{}
			case req.URL == "/7":
				return heedtest.Response{Fault: heedtest.Drop}
			case strings.HasSuffix(req.URL, "0"):
				return heedtest.Response{}
			}
			return heedtest.Response{Status: 422}
		})
		r.client = heed.NewClient(&heed.Transport{Base: r.Transport(), Retry: &heed.RetryPolicy{MaxAttempts: 1}})
		defer r.client.CloseIdleConnections()
		dir := t.TempDir()
		dead := filepath.Join(dir, "dead")
		unkeyed := func(*http.Request) string { return "" }
		o := r.open(t, batch.OutboxConfig{Path: filepath.Join(dir, "outbox"), DeadLetters: dead, IdempotencyKey: unkeyed})
		for i := range 100 {
			r.submit(t, o, "POST", fmt.Sprint("/", i))
		}
		require.NoError(t, o.Drain(t.Context()))
		left, err := batch.ReadOutbox(dead)
		require.NoError(t, err)
		require.Len(t, left, 90)
		for n, q := range left {
			i := n + n/9 + 1
			require.Equal(t, fmt.Sprint("/", i), q.Request.URL.Path)
			require.Equal(t, i == 7, q.Sent)
			if i == 7 {
				require.Contains(t, q.Failure, batch.ErrInterrupted.Error())
			} else {
				require.Equal(t, "batch: the server rejected the request: 422 Unprocessable Entity", q.Failure)
			}
		}

		fixed = true
		before := len(r.Requests())
		o = r.open(t, batch.OutboxConfig{Path: dead, IdempotencyKey: unkeyed})
		require.NoError(t, o.Drain(t.Context()))
		require.Len(t, r.Requests(), before+89)
		require.NotContains(t, r.urls()[before:], "/7")
		got := r.got()
		require.Contains(t, got[len(got)-84], "interrup", "the seventh")
	})
}

// A request that cannot be added to the dead letters stays the first, and is not lost.
func TestOutbox_keepsWhatTheDeadLettersCannotHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(heedtest.Request) heedtest.Response { return heedtest.Response{Status: 400} })
		dead := filepath.Join(t.TempDir(), "dead")
		require.NoError(t, os.WriteFile(dead, []byte("my thesis"), 0o600))
		o := r.open(t, batch.OutboxConfig{DeadLetters: dead})
		r.submit(t, o, "POST", "/")
		time.Sleep(time.Minute)
		require.Equal(t, 1, o.State().Requests)
		require.ErrorIs(t, o.State().LastError, batch.ErrDamaged)
		require.NoError(t, os.Remove(dead))
		require.NoError(t, o.Drain(t.Context()))
		left, err := batch.ReadOutbox(dead)
		require.NoError(t, err)
		require.Len(t, left, 1)

		bounded := filepath.Join(t.TempDir(), "bounded")
		o = r.open(t, batch.OutboxConfig{DeadLetters: bounded, MaxBytes: 1000})
		for range 9 {
			r.submit(t, o, "POST", "/")
			time.Sleep(time.Second)
			if o.State().Requests > 0 {
				break
			}
		}
		require.ErrorContains(t, o.State().LastError, "OutboxConfig.MaxBytes of 1000 bytes")
		info, err := os.Stat(bounded)
		require.NoError(t, err)
		require.LessOrEqual(t, info.Size(), int64(1100))
	})
}
