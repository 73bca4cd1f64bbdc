package heed

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// concurrencyLimit is a limit on the number of requests in flight. Its claims last until
// the end of the response.
type concurrencyLimit struct {
	mu       sync.Mutex
	max      int
	n        int
	observed []throttle.Feedback
}

func (l *concurrencyLimit) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := throttle.Decision{OK: l.n < l.max, Policy: "in flight", At: c.Now}
	if d.OK && !c.DryRun {
		l.n++
	}
	return d, nil
}

func (l *concurrencyLimit) Report(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.n--
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.observed = append(l.observed, f); f.State != throttle.Ongoing {
		l.n--
	}
}

// Traits implements throttle.Limiter.
func (l *concurrencyLimit) Traits() throttle.Traits { return throttle.Traits{} }

func (l *concurrencyLimit) held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

var limitScenarios = []scenario{
	{number: 150, summary: "an open breaker: nothing sent", run: func(t *testing.T) {
		s := newScript(200)
		l := &concurrencyLimit{max: 1}
		open := &breaker{err: errBroken}
		_, err := get(t, &Transport{Base: s, Limiter: l, Breaker: func(*http.Request) Breaker { return open }})
		require.ErrorIs(t, err, errBroken)
		require.Zero(t, s.sent())
		require.Zero(t, l.held())
		for _, r := range []*RetryPolicy{nil, {AttemptTimeout: time.Minute}, {MaxBodyBuffer: -1}} {
			body := &opaque{Reader: strings.NewReader("abc")}
			_, err = (&Transport{Base: s, Retry: r, Breaker: func(*http.Request) Breaker { return open }}).RoundTrip(put(t, body, -1))
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, 1, body.closed)
		}

		shut := &breaker{}
		s = newScript(500, errConnRefused, 429, 200)
		_, err = get(t, &Transport{Base: s, Breaker: func(*http.Request) Breaker { return shut }})
		require.NoError(t, err)
		require.Equal(t, []bool{false, false, true, true}, shut.succeeded)
	}},
	{number: 151, summary: "a full line: its error, nothing sent", run: func(t *testing.T) {
		s := newScript(200)
		w := &queue.Queue{MaxPerClass: 1}
		l := &concurrencyLimit{max: 0}
		tr := &Transport{Base: s, Limiter: l, Queue: w}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
			done <- err
		}()
		synctest.Wait()
		_, err := get(t, tr)
		require.ErrorIs(t, err, throttle.ErrRejected)
		var full *queue.FullError
		require.ErrorAs(t, err, &full)
		cancel()
		require.Equal(t, context.Canceled, <-done)
		require.Zero(t, s.sent())
	}},
	{number: 152, summary: "retries wait for the limit; cancelled in line: the context's error", run: func(t *testing.T) {
		s := newScript(500, 200)
		tr := &Transport{Base: s, Retry: threeAttempts(), Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Minute})}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{time.Minute}, s.gaps())
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.Equal(t, 59*time.Second, info.QueueWait)
		require.Equal(t, time.Second, info.BackoffWait)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.Equal(t, context.Canceled, err)
		require.Equal(t, 2, s.sent())
	}},
	{number: 153, summary: "a longer wait than allowed is rejected at once and takes nothing", run: func(t *testing.T) {
		s := newScript(200)
		tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 5, Per: time.Second, Burst: 1})}
		_, err := get(t, tr)
		require.NoError(t, err)
		_, err = tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{MaxWait: 100 * time.Millisecond})))
		require.ErrorIs(t, err, throttle.ErrRejected)
		require.ErrorIs(t, err, ErrMaxWait)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, time.Since(s.start))
		_, err = get(t, tr)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{200 * time.Millisecond}, s.gaps())
	}},
	{number: 154, summary: "one per 100 ms: waits of 0, 100, 200", run: func(t *testing.T) {
		s := newScript(200)
		tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 1})}
		for range 3 {
			_, err := get(t, tr)
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, s.gaps())
	}},
	{number: 155, summary: "smooth, one per 500 ms: several at once, now and then", run: func(t *testing.T) {
		each := throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 1, Per: 500 * time.Millisecond}}
		batches(t, throttle.NewRefillBucket(each), []batch{{0, 7, 3000}, {800, 3, 3700}, {2300, 1, 2700}, {3500, 3, 3000}, {9100, 3, 900}, {11000, 1, 0}})
	}},
	{number: 156, summary: "smooth: grants are aligned to multiples of the interval", run: func(t *testing.T) {
		each := throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 1, Per: 500 * time.Millisecond}}
		batches(t, throttle.NewRefillBucket(each), []batch{{750, 1, 0}, {751, 1, 249}})
	}},
	{number: 157, summary: "bursty: so many per period, several at once", run: func(t *testing.T) {
		batches(t, throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 2, Per: time.Second, Align: throttle.AtCreation}), []batch{{0, 7, 3000}, {800, 3, 3200}, {2300, 1, 2700}, {3500, 3, 2500}, {7000, 1, 0}})
		batches(t, throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Second, Align: throttle.AtCreation}), []batch{{300, 3, 0}, {1550, 10, 450}, {2210, 2, 790}})
	}},
	{number: 158, summary: "several units at once wait as long as the last of single ones", run: func(t *testing.T) {
		s := newScript(200)
		tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 7})}
		for range 7 {
			_, err := get(t, tr)
			require.NoError(t, err)
		}
		_, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{Cost: 7})))
		require.NoError(t, err)
		require.Equal(t, 700*time.Millisecond, s.gaps()[6])
	}},
}

// A batch is a number of requests that start together at some time, and the time when the
// last of them is sent, relative to the start. Times are in milliseconds.
type batch struct{ at, n, wait int }

func batches(t *testing.T, l throttle.Limiter, list []batch) {
	t.Helper()
	tr := &Transport{Base: newScript(200), Limiter: l, Quota: &quota.Tracker{}}
	start := time.Now()
	var all sync.WaitGroup
	for _, b := range list {
		all.Go(func() {
			time.Sleep(time.Duration(b.at) * time.Millisecond)
			var wg sync.WaitGroup
			for range b.n {
				wg.Go(func() { get(t, tr) })
			}
			wg.Wait()
			if got := time.Since(start); got != time.Duration(b.at+b.wait)*time.Millisecond {
				t.Errorf("%+v: sent at %v", b, got)
			}
		})
	}
	all.Wait()
}

// breaker is a Breaker that is open if err is not nil.
type breaker struct {
	err       error
	succeeded []bool
}

func (b *breaker) Allow() (func(error), error) {
	return func(err error) { b.succeeded = append(b.succeeded, err == nil) }, b.err
}
