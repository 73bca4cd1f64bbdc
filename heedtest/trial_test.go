package heedtest

import (
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/internal/scorecard"
	"github.com/stretchr/testify/require"
)

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRunner_hostileClients checks that clients that never return, panic, or never stop fail
// a check and let the next one run.
func TestRunner_hostileClients(t *testing.T) {
	for name, tt := range map[string]struct {
		detail string
		send   func(base http.RoundTripper, r *http.Request) (*http.Response, error)
	}{
		"hangs": {"a call had not ended after 3h0m0s", func(http.RoundTripper, *http.Request) (*http.Response, error) { select {} }},
		"hangs with timers": {"a call had not ended after 3h0m0s", func(http.RoundTripper, *http.Request) (*http.Response, error) {
			for {
				time.Sleep(time.Second)
			}
		}},
		"panics": {"the client panicked: fault", func(http.RoundTripper, *http.Request) (*http.Response, error) { panic("fault") }},
		"panics with nil": {"the client panicked", func(http.RoundTripper, *http.Request) (*http.Response, error) {
			panic((error)(nil))
		}},
		"ends the goroutine": {"the client ended the goroutine of its caller", func(http.RoundTripper, *http.Request) (*http.Response, error) {
			runtime.Goexit()
			return nil, nil
		}},
		"panics in the body": {"the body of the client panicked: fault", func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: badBody{}, Request: r}, nil
		}},
		"sends without end": {"the client sent more than 1000 requests", func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			for {
				if resp, err := base.RoundTrip(r); err == nil {
					resp.Body.Close()
				}
			}
		}},
		"sends without end in the background": {"the client sent more than 1000 requests", func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			go func() {
				for {
					if resp, err := base.RoundTrip(r); err == nil {
						resp.Body.Close()
					}
				}
			}()
			time.Sleep(time.Second)
			return base.RoundTrip(r)
		}},
		"keeps a lock": {"the client panicked: locked", func() func(http.RoundTripper, *http.Request) (*http.Response, error) {
			return func(http.RoundTripper, *http.Request) (*http.Response, error) {
				var mu sync.Mutex
				mu.Lock()
				panic("locked")
			}
		}()},
	} {
		t.Run(name, func(t *testing.T) {
			client := func(base http.RoundTripper) http.RoundTripper {
				return roundTripper(func(r *http.Request) (*http.Response, error) { return tt.send(base, r) })
			}
			card := run(t, client, "deadline", "response-body")
			for _, m := range card {
				require.Equal(t, scorecard.Failed, m.Result)
				require.Contains(t, m.Detail, tt.detail)
			}
		})
	}
}

// TestRunner_panicInOneOfManyCalls checks a client that panics in calls that run at the same
// time.
func TestRunner_panicInOneOfManyCalls(t *testing.T) {
	m := run(t, func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(r)
			if err == nil && resp.ContentLength > 1000 { // the bodies that are closed early
				panic("fault")
			}
			return resp, err
		})
	}, "lost-units")[0]
	require.Equal(t, scorecard.Failed, m.Result)
	require.Contains(t, m.Detail, "bodies that are closed early: the client panicked: fault")
}

// TestRunner_countsRequests checks the number of requests that a client may send in a trial.
func TestRunner_countsRequests(t *testing.T) {
	for n, want := range map[int]string{1000: "", 1001: "Retry-After: 60: the client sent more than 1000 requests"} {
		m := run(t, func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				for range n - 1 {
					if resp, err := base.RoundTrip(r); err == nil {
						resp.Body.Close()
					}
				}
				return base.RoundTrip(r)
			})
		}, "useless-wait")[0]
		require.Equal(t, want, m.Detail)
	}
}

// TestRunner_leavesNoGoroutines checks that the server, and the calls of a client that sends
// without end, end with the trial.
func TestRunner_leavesNoGoroutines(t *testing.T) {
	for name, send := range map[string]func(http.RoundTripper, *http.Request) (*http.Response, error){
		"plain": func(base http.RoundTripper, r *http.Request) (*http.Response, error) { return base.RoundTrip(r) },
		"without end": func(base http.RoundTripper, r *http.Request) (*http.Response, error) {
			for {
				if resp, err := base.RoundTrip(r); err == nil {
					resp.Body.Close()
				}
			}
		},
	} {
		before := runtime.NumGoroutine()
		run(t, func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) { return send(base, r) })
		}, "useless-wait", "endless-body")
		for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before && time.Now().Before(end); { // that of the trial has reported, and ends
			runtime.Gosched()
		}
		require.LessOrEqual(t, runtime.NumGoroutine(), before, name)
	}
}

type badBody struct{}

func (badBody) Read([]byte) (int, error) { panic("fault") }
func (badBody) Close() error             { return nil }

// TestRunner_readsWithoutEnd checks a client whose goroutine reads an endless body.
func TestRunner_readsWithoutEnd(t *testing.T) {
	m := run(t, func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			go io.Copy(io.Discard, resp.Body)
			time.Sleep(time.Minute)
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
		})
	}, "endless-body")[0]
	require.Equal(t, scorecard.Failed, m.Result)
	require.Contains(t, m.Detail, "the client read more than 16 MiB")
}

// TestRunner_busyClient checks a client that uses a processor without end, so that virtual
// time does not advance.
func TestRunner_busyClient(t *testing.T) {
	var stop atomic.Bool
	var r *runner
	defer func() { // the bubble of the trial is a part of this test
		stop.Store(true)
		<-r.abandoned
	}()
	r = &runner{maxRealTime: 100 * time.Millisecond, newClient: func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(*http.Request) (*http.Response, error) {
			for !stop.Load() {
				runtime.Gosched()
			}
			return nil, io.EOF
		})
	}}
	m := r.mark(t, *find("leaks"))
	require.Equal(t, scorecard.Failed, m.Result)
	require.Contains(t, m.Detail, "the client blocked for 100ms without letting virtual time advance")
	m = r.mark(t, *find("herd"))
	require.Equal(t, scorecard.Mark{Check: "herd", Result: scorecard.Failed, Limit: 15, Unit: "requests in 20 ms", Detail: "not run: the client still blocks in check leaks"}, m)
}

func TestRunner_noClient(t *testing.T) {
	m := run(t, func(http.RoundTripper) http.RoundTripper { return nil }, "leaks")[0]
	require.Equal(t, "calls with all outcomes: newClient returned nil", m.Detail)
	m = run(t, nil, "leaks")[0]
	require.Equal(t, scorecard.Failed, m.Result)
	require.Contains(t, m.Detail, "panicked")
}

func TestRunner_inABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := run(t, func(base http.RoundTripper) http.RoundTripper { return base }, "leaks")[0]
		require.Equal(t, scorecard.Failed, m.Result)
		require.Contains(t, m.Detail, "bubble")
	})
}

func TestBubbleGoroutines(t *testing.T) {
	require.Zero(t, bubbleGoroutines())
	synctest.Test(t, func(t *testing.T) {
		synctest.Wait()
		before := bubbleGoroutines()
		end := make(chan struct{})
		const many = 20_000 // more than a buffer of 1 MiB has space for
		for range many {
			go func() { <-end }()
		}
		synctest.Wait()
		require.Equal(t, many, bubbleGoroutines()-before)
		close(end)
		synctest.Wait()
		require.Equal(t, before, bubbleGoroutines())
	})
}
