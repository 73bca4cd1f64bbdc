package batch_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
)

// TestMonitor_showsAJob reads the state of a job with a failing item, without Options.Progress,
// while it runs and when it has ended.
func TestMonitor_showsAJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m batch.Monitor
		require.Empty(t, m.Snapshot())
		ended := make(chan error, 1)
		go func() {
			_, err := batch.Run(t.Context(), upTo(100), func(_ context.Context, i int) error {
				time.Sleep(time.Second)
				if i == 5 {
					return errors.New("Get \"https://user:secret@a.test/x?token=secret\": rejected")
				}
				return nil
			}, batch.Options{Workers: 2, Total: 100, Job: "import", Monitor: &m})
			ended <- err
		}()
		time.Sleep(10*time.Second + 500*time.Millisecond)
		require.Equal(t, []batch.Snapshot{{Name: "import", Done: 19, Failed: 1, Running: 2, Waiting: 78, Rate: 20 / 10.5, TimeLeft: 42 * time.Second}}, m.Snapshot())
		time.Sleep(20 * time.Second)
		s := m.Snapshot()[0]
		require.InDelta(t, 60/30.5, s.Rate, 1e-9)
		require.InDelta(t, 20, s.TimeLeft.Seconds(), 1)
		time.Sleep(time.Minute)
		states := m.Snapshot()
		require.Len(t, states, 1)
		require.Equal(t, 40*time.Second+500*time.Millisecond, time.Since(states[0].Ended))
		require.NotContains(t, states[0].Failure, "secret")
		require.Contains(t, states[0].Failure, "1 items failed")
		require.Contains(t, (<-ended).Error(), "secret", "that of the caller is not changed")
		states[0].Ended, states[0].Failure = time.Time{}, ""
		require.Equal(t, []batch.Snapshot{{Name: "import", Done: 99, Failed: 1}}, states)
	})
}

// TestMonitor_showsAPause checks a job that waits for a server, and one whose size is not known.
func TestMonitor_showsAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m batch.Monitor
		first := true
		go batch.Run(t.Context(), upTo(20), func(_ context.Context, i int) error {
			time.Sleep(time.Second)
			if i == 10 && first {
				first = false
				return &throttle.RejectedError{Decision: throttle.Decision{Wait: time.Hour}, Reason: heed.ErrMaxWait}
			}
			return nil
		}, batch.Options{Workers: 1, Repeat: batch.RepeatAlways, Monitor: &m})
		time.Sleep(12 * time.Second)
		s := m.Snapshot()[0]
		require.Equal(t, -1, s.Waiting, "not known")
		require.Equal(t, 1, s.Running)
		require.Zero(t, s.TimeLeft)
		require.Equal(t, 59*time.Minute+59*time.Second, time.Until(s.PausedUntil))
		time.Sleep(2 * time.Hour)
		require.Zero(t, m.Snapshot()[0].PausedUntil)
	})
}

// TestMonitor_jobsThatDoNotReturn checks that jobs whose functions panic or exit do not stay.
func TestMonitor_jobsThatDoNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m batch.Monitor
		require.Panics(t, func() {
			_, _ = batch.Run(t.Context(), upTo(3), func(context.Context, int) error { panic("fault") }, batch.Options{Job: "panics", Monitor: &m})
		})
		require.Panics(t, func() {
			_, _ = batch.Run(t.Context(), func(func(int) bool) { panic("fault") }, func(context.Context, int) error { return nil }, batch.Options{Job: "sequence", Monitor: &m})
		})
		states := m.Snapshot()
		require.Len(t, states, 2)
		for i, name := range []string{"sequence", "panics"} {
			require.Equal(t, name, states[i].Name)
			require.False(t, states[i].Ended.IsZero())
			require.Equal(t, "batch: the function did not return", states[i].Failure)
			require.Zero(t, states[i].Running)
		}
	})
}

// TestMonitor_isBounded checks what is kept of jobs that have ended.
func TestMonitor_isBounded(t *testing.T) {
	var m batch.Monitor
	run := func(name string, n int) {
		_, err := batch.Run(t.Context(), upTo(n), func(context.Context, int) error { return nil }, batch.Options{Job: name, Monitor: &m})
		require.NoError(t, err)
	}
	for i := range 50 {
		run(fmt.Sprint("job ", i), 1)
	}
	states := m.Snapshot()
	require.Len(t, states, 20)
	require.Equal(t, []string{"job 49", "job 30"}, []string{states[0].Name, states[19].Name}, "the latest first")
	for range 50 {
		run("job 40", 7)
	}
	states = m.Snapshot()
	names := map[string]bool{}
	for _, s := range states {
		names[s.Name] = true
	}
	require.Len(t, states, 20)
	require.Len(t, names, 20, "once for each name")
	require.Equal(t, "job 40", states[0].Name)
	require.Equal(t, 7, states[0].Done)
	require.Nil(t, (*batch.Monitor)(nil).Snapshot())
}

// TestMonitor_jobsAtTheSameTime checks that jobs of one name that run at the same time are all
// shown.
func TestMonitor_jobsAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m batch.Monitor
		for range 3 {
			go batch.Run(t.Context(), upTo(5), func(context.Context, int) error { time.Sleep(time.Second); return nil }, batch.Options{Workers: 1, Monitor: &m})
		}
		time.Sleep(2500 * time.Millisecond)
		require.Len(t, m.Snapshot(), 3)
		time.Sleep(time.Minute)
		states := m.Snapshot()
		require.Len(t, states, 3, "they ended together")
		for _, s := range states {
			require.Equal(t, 5, s.Done)
		}
	})
}

// TestMonitor_showsAnOutbox follows an Outbox through an outage: what it holds, how fast it sends,
// since when it does not advance, and why.
func TestMonitor_showsAnOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		r := newRig(t, func(req heedtest.Request) heedtest.Response {
			switch {
			case down.Load():
				return heedtest.Response{Status: http.StatusBadGateway}
			case req.URL == "/bad":
				return heedtest.Response{Status: http.StatusBadRequest, Delay: time.Second}
			}
			return heedtest.Response{Delay: time.Second}
		})
		var m batch.Monitor
		path := filepath.Join(t.TempDir(), "outbox")
		o := r.open(t, batch.OutboxConfig{Path: path, Monitor: &m, Name: "orders"})
		require.Equal(t, []batch.Snapshot{{Name: "orders", Outbox: true}}, m.Snapshot())
		time.Sleep(10 * time.Hour) // idle: no time in which it sends
		start := time.Now()
		for i := range 30 {
			r.submit(t, o, "POST", map[bool]string{true: "/bad", false: "/"}[i == 3])
		}
		time.Sleep(10*time.Second + 500*time.Millisecond)
		s := m.Snapshot()[0]
		require.Equal(t, []int{9, 1, 0, 20}, []int{s.Done, s.Failed, s.Unknown, s.Waiting})
		require.InDelta(t, 10/10.5, s.Rate, 1e-6)
		require.InDelta(t, 21, s.TimeLeft.Seconds(), 1e-6)
		require.Equal(t, start.Add(10*time.Second), s.FirstSince)
		require.Empty(t, s.Failure)

		down.Store(true)
		time.Sleep(5 * time.Minute)
		s = m.Snapshot()[0]
		require.Equal(t, 19, s.Waiting)
		require.Equal(t, start.Add(11*time.Second), s.FirstSince, "it does not advance")
		require.Contains(t, s.Failure, "502")
		paused := 0
		for range 60 {
			time.Sleep(time.Second)
			if until := m.Snapshot()[0].PausedUntil; !until.IsZero() {
				require.LessOrEqual(t, time.Until(until), 75*time.Second, "the longest delay, with jitter")
				paused++
			}
		}
		require.Positive(t, paused)
		time.Sleep(2 * time.Minute)
		s = m.Snapshot()[0]
		require.Zero(t, s.Rate, "none left in the last minute")
		require.Zero(t, s.TimeLeft, "not known")

		down.Store(false)
		require.NoError(t, o.Drain(t.Context()))
		s = m.Snapshot()[0]
		require.Equal(t, []int{29, 1, 0, 0}, []int{s.Done, s.Failed, s.Unknown, s.Waiting})
		require.Zero(t, s.FirstSince)
		require.Zero(t, s.TimeLeft)

		time.Sleep(10 * time.Hour)
		for range 200 {
			r.submit(t, o, "POST", "/")
		}
		for range 100 {
			time.Sleep(time.Second)
			s = m.Snapshot()[0]
		}
		require.InDelta(t, 1, s.Rate, .02)
		require.NoError(t, o.Drain(t.Context()))

		down.Store(true)
		r.submit(t, o, "POST", "/")
		time.Sleep(time.Minute)
		_, err := o.Close(t.Context())
		require.NoError(t, err)
		require.Empty(t, m.Snapshot(), "it was closed")
		o = r.open(t, batch.OutboxConfig{Path: path, Monitor: &m})
		opened := time.Now()
		time.Sleep(time.Minute)
		s = m.Snapshot()[0]
		require.Equal(t, 1, s.Waiting)
		require.Equal(t, opened, s.FirstSince, "it holds a request of the file")
		_, err = o.Close(t.Context())
		require.NoError(t, err)
	})
}

// TestMonitor_hidesSecretsOfAnOutbox checks the text of a failure of the network.
func TestMonitor_hidesSecretsOfAnOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m batch.Monitor
		o, err := batch.OpenOutbox(batch.OutboxConfig{Monitor: &m, Client: &http.Client{Transport: failing{}}})
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(t.Context(), "POST", "https://a.test/x?token=secret", strings.NewReader("{}"))
		require.NoError(t, err)
		_, err = o.Submit(req)
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		require.Contains(t, o.State().LastError.Error(), "secret")
		require.Contains(t, m.Snapshot()[0].Failure, "https://a.test/x")
		require.NotContains(t, m.Snapshot()[0].Failure, "secret")
		_, err = o.Close(t.Context())
		require.NoError(t, err)
	})
}

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// TestMonitor_countsUnknownOutcomes checks a request that may have been processed and must not be
// repeated.
func TestMonitor_countsUnknownOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(heedtest.Request) heedtest.Response { return heedtest.Response{Fault: heedtest.Drop} })
		var m batch.Monitor
		o := r.open(t, batch.OutboxConfig{Monitor: &m, IdempotencyKey: func(*http.Request) string { return "" }})
		r.submit(t, o, "POST", "/")
		require.NoError(t, o.Drain(t.Context()))
		s := m.Snapshot()[0]
		require.Equal(t, []int{0, 0, 1, 0}, []int{s.Done, s.Failed, s.Unknown, s.Waiting})
	})
}
