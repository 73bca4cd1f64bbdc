package heedtest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/internal/scorecard"
)

func newHeed(base http.RoundTripper) http.RoundTripper { return &heed.Transport{Base: base} }

// checksIfShort returns the names of all checks, but for healthy-server if tests are to be short. It takes longer than all others
// together. TestRun_heed, TestRun_figures and TestRun_traffic always run it.
func checksIfShort() []string {
	return slices.DeleteFunc(scorecard.Names(), func(check string) bool { return testing.Short() && check == "healthy-server" })
}

// TestRun_heed checks that heed passes all checks, and that all of them apply.
func TestRun_heed(t *testing.T) {
	for _, m := range scorecard.Run(t, newHeed) {
		require.Equal(t, scorecard.Passed, m.Result, m)
		require.Empty(t, m.Detail, m)
	}
}

func TestRun_clientWithoutRetries(t *testing.T) {
	card := scorecard.Run(t, func(base http.RoundTripper) http.RoundTripper { return base }, checksIfShort()...)
	results := map[scorecard.Result][]string{}
	for _, m := range card {
		results[m.Result] = append(results[m.Result], m.Check)
	}
	require.Equal(t, []string{"dialects"}, results[scorecard.Failed])
	require.Equal(t, []string{"early-retry", "request-body", "herd", "nested-retries"}, results[scorecard.NotApplicable])
	require.Len(t, card.Failed(), 1)
	require.Contains(t, card.String(), "RateLimit: 20 requests of 30 calls were rejected")
}

func TestRun_names(t *testing.T) {
	card := scorecard.Run(t, newHeed, "leaks", "no such check")
	require.Equal(t, scorecard.Card{
		{Check: "leaks", Result: scorecard.Passed, Unit: "leaks"},
		{Check: "no such check", Result: scorecard.Failed, Detail: "there is no such check"},
	}, card)
}

// A retrier is a client with retries. Without further fields it passes all checks but
// dialects; each field is a fault.
type retrier struct {
	base http.RoundTripper

	early, unsafe, stale, synchronous, unbounded, nested, discards, unclosed, deaf, patient, drains bool
}

type layerKey struct{}

// RoundTrip implements http.RoundTripper.
func (c *retrier) RoundTrip(r *http.Request) (*http.Response, error) {
	attempts := 3
	if c.unbounded {
		attempts = 1 << 30
	}
	if r.Context().Value(layerKey{}) != nil && !c.nested {
		attempts = 1
	}
	ctx := context.WithValue(r.Context(), layerKey{}, true)
	if c.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	sent := r.WithContext(ctx)
	for attempt := 1; ; attempt++ {
		resp, err := c.base.RoundTrip(sent)
		if attempt == attempts && c.discards && err == nil && resp.StatusCode >= 500 {
			resp.Body.Close()
			return nil, errors.New("giving up")
		}
		if attempt == attempts || err != nil && ctx.Err() != nil || !c.retryable(r, resp, err) {
			return resp, err
		}
		wait, ok := c.wait(ctx, resp)
		body, rewound := c.rewind(r)
		if !ok || !rewound {
			return resp, err
		}
		if resp != nil && c.drains {
			_, _ = io.Copy(io.Discard, resp.Body)
		}
		if resp != nil && !c.unclosed {
			resp.Body.Close()
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
		sent = r.Clone(ctx)
		sent.Body = body
	}
}

func (c *retrier) retryable(r *http.Request, resp *http.Response, err error) bool {
	idempotent := r.Method != http.MethodPost && r.Method != http.MethodPatch
	switch {
	case err != nil:
		return idempotent || c.unsafe
	case resp.StatusCode == http.StatusTooManyRequests:
		return true
	}
	return resp.StatusCode >= 500 && (idempotent || c.unsafe)
}

// wait returns the delay before the next attempt, or false if it is too long.
func (c *retrier) wait(ctx context.Context, resp *http.Response) (time.Duration, bool) {
	wait := 100 * time.Millisecond
	if resp != nil {
		v := resp.Header.Get("Retry-After")
		if s, err := strconv.Atoi(v); err == nil {
			wait = time.Duration(s) * time.Second
		} else if at, err := http.ParseTime(v); err == nil {
			wait = time.Until(at)
		}
	}
	deadline, limited := ctx.Deadline()
	switch {
	case c.patient:
	case wait > time.Minute, limited && time.Until(deadline) < wait:
		return 0, false
	}
	if c.early {
		return wait / 2, true
	}
	if c.synchronous {
		return wait, true
	}
	return wait + rand.N(10*time.Second), true
}

// rewind returns the body for the next attempt, or false if there is none.
func (c *retrier) rewind(r *http.Request) (io.ReadCloser, bool) {
	switch {
	case c.stale, r.Body == nil, r.Body == http.NoBody:
		return r.Body, true
	case r.GetBody == nil:
		return nil, false
	}
	body, err := r.GetBody()
	return body, err == nil
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 { // the race detector of Go 1.26 can crash on timers of a bubble that have expired
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newRetrier(base http.RoundTripper) http.RoundTripper { return &retrier{base: base} }

// TestRun_careful checks that a correct client other than heed passes. It does not read the
// header fields about limits.
func TestRun_careful(t *testing.T) {
	for _, m := range scorecard.Run(t, newRetrier, checksIfShort()...) {
		if m.Check == "dialects" {
			require.Equal(t, scorecard.Failed, m.Result)
		} else {
			require.Equal(t, scorecard.Passed, m.Result, m)
		}
	}
}

// TestRun_faults checks that clients with one fault each fail the check that is about it.
func TestRun_faults(t *testing.T) {
	for _, tt := range []struct {
		check, fault, detail string // detail is part of the sentence
		client               func(base http.RoundTripper) http.RoundTripper
	}{
		{"contract", "sets a header", "Header of the request was changed", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				r.Header.Set("X-Attempt", "1")
				return base.RoundTrip(r)
			})
		}},
		{"contract", "replaces the body and does not close it", "Body of the request was changed, the body of the request was not closed", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.Body != nil {
					b, _ := io.ReadAll(r.Body)
					r.Body = io.NopCloser(bytes.NewReader(b))
				}
				return base.RoundTrip(r)
			})
		}},
		{"contract", "returns nothing", "neither a response nor an error", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				r.Body.Close()
				return nil, nil
			})
		}},
		{"contract", "returns both", "a response and an error", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := base.RoundTrip(r)
				if err == nil && resp.StatusCode >= 500 {
					err = errors.New("server error")
				}
				return resp, err
			})
		}},
		{"contract", "returns no body", "a response without a body", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := base.RoundTrip(r)
				if err == nil {
					resp.Body.Close()
					resp.Body = nil
				}
				return resp, err
			})
		}},
		{"contract", "forgets the length of the body", "the ContentLength of the request was changed", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if r.ContentLength > 0 {
					r.ContentLength = -1
				}
				return base.RoundTrip(r)
			})
		}},
		{"contract", "changes the URL", "the URL of the request was changed", changing(func(r *http.Request) { r.URL.Path = "/other" })},
		{"contract", "replaces the URL", "the URL of the request was changed", changing(func(r *http.Request) {
			u := *r.URL
			r.URL = &u
		})},
		{"contract", "changes the method", "the Method of the request was changed", changing(func(r *http.Request) { r.Method = http.MethodPut })},
		{"contract", "changes the host", "the Host of the request was changed", changing(func(r *http.Request) { r.Host = "other.test" })},
		{"contract", "adds GetBody", "the GetBody of the request was changed", changing(func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return http.NoBody, nil }
		})},
		{"contract", "adds a value to a header", "the Header of the request was changed", changing(func(r *http.Request) {
			for name := range r.Header {
				r.Header.Add(name, "x")
			}
		})},
		{"early-retry", "waits for half of Retry-After", "a retry came 1", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, early: true}
		}},
		{"request-body", "sends the consumed body again", "arrived with another body", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: withoutBody(base), stale: true}
		}},
		{"response-body", "ignores errors of bodies", "of 100 bytes and no error", buffering},
		{"duplicate-post", "retries POST", "POST after", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, unsafe: true}
		}},
		{"herd", "adds no jitter", "40 of 50 callers came back within 20 ms", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, synchronous: true}
		}},
		{"retry-bound", "never stops", "sent more than 1000 requests", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, unbounded: true, synchronous: true}
		}},
		{"retry-bound", "two layers", "one call was sent 27 times", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: &retrier{base: &retrier{base: base, nested: true}, nested: true}, nested: true}
		}},
		{"nested-retries", "multiplies", "three layers sent 27 requests, one sends 3", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, nested: true}
		}},
		{"last-response", "returns an error of its own", "503: the caller got neither", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, discards: true}
		}},
		{"leaks", "does not close bodies", "response bodies", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, unclosed: true}
		}},
		{"leaks", "does not end goroutines", "and 40 goroutines were left", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				go func() { select {} }()
				return base.RoundTrip(r)
			})
		}},
		{"contract", "does not close the body of a cancelled request", "whose context has ended: the body of the request was not closed", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if err := r.Context().Err(); err != nil {
					return nil, err
				}
				return base.RoundTrip(r)
			})
		}},
		{"leaks", "ends goroutines too late", "40 goroutines were left", lingering(15*time.Minute + 30*time.Second)},
		{"deadline", "does not pass on the context", "a call had not ended", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, deaf: true, synchronous: true}
		}},
		{"deadline", "sleeps without the context", "after its context", sleepingAfter(3 * time.Second)},
		{"deadline", "hides the error of the context", "but the error is not context", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := base.RoundTrip(r)
				if err != nil {
					err = errors.New("request failed")
				}
				return resp, err
			})
		}},
		{"useless-wait", "waits for the deadline", "the call waited 10s of its 10s", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, patient: true}
		}},
		{"long-wait", "waits for a year", "stopped a call for 2h0m0s", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, patient: true}
		}},
		{"endless-body", "reads the response", "read more than 16 MiB", buffering},
		{"stalled-body", "drains before a retry", "429 that stops: a call had not ended", func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, drains: true}
		}},
		{"upload-buffer", "reads the upload", "8192 KiB of an upload of 8192 KiB", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				b, _ := io.ReadAll(r.Body)
				r.Body.Close()
				r = r.Clone(r.Context())
				r.Body = io.NopCloser(bytes.NewReader(b))
				return base.RoundTrip(r)
			})
		}},
		{"healthy-server", "stops after every failure", "% of calls failed at a server that fails 1 %", stoppingAfter(func(status int) bool { return status != 200 })},
		{"healthy-server", "stops after 429", "429: ", stoppingAfter(func(status int) bool { return status == 429 })},
		{"healthy-server", "stops after 500", "500: ", stoppingAfter(func(status int) bool { return status == 500 })},
		{"healthy-server", "stops after 503", "503: ", stoppingAfter(func(status int) bool { return status == 503 })},
		{"dialects", "reads only Retry-After", "retries came before the stated time", newRetrier},
		{"dialects", "retries once without reading headers", "requests of 30 calls were rejected", func(base http.RoundTripper) http.RoundTripper {
			return newHeed(roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := base.RoundTrip(r)
				if err != nil || resp.StatusCode != http.StatusTooManyRequests || sleep(r.Context(), time.Second) != nil {
					return resp, err
				}
				resp.Body.Close()
				return base.RoundTrip(r)
			}))
		}},
		{"dialects", "waits before every call", "30 calls took 2m6s", sleeping(21 * time.Second)},
		{"stalled-body", "waits for more than ten minutes", "the call took 600.001 s, waiting for a body that the caller did not need", sleeping(10*time.Minute + time.Millisecond)},
		{"endless-body", "reads 2 MiB of the response", "the client read 2052 KiB of a response of which the caller read 4", reading(2 << 20)},
		{"upload-buffer", "sends the upload without end", "sent more than 50 requests", resending},
		{"request-body", "sends the request without end", "sent more than 50 requests", resending},
		{"nested-retries", "two attempts", "three layers sent 8 requests, one sends 2", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := base.RoundTrip(r)
				if err != nil || resp.StatusCode < 500 {
					return resp, err
				}
				resp.Body.Close()
				return base.RoundTrip(r)
			})
		}},
		{"last-response", "returns another body", "503: the caller got neither the last response nor its status, but status 503 and error <nil>", func(base http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				resp, err := base.RoundTrip(r)
				if err == nil && resp.StatusCode == 503 {
					resp.Body.Close()
					resp.Body = http.NoBody
				}
				return resp, err
			})
		}},
		{"lost-units", "fails one later call", "1 of 20 calls to a healthy server failed after earlier ones were given up", func(base http.RoundTripper) http.RoundTripper {
			var calls atomic.Int64
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if calls.Add(1) == 40 {
					return nil, errors.New("failed")
				}
				return base.RoundTrip(r)
			})
		}},
		{"lost-units", "keeps slots of failed calls", "a call had not ended", newLeakySlots},
		{"lost-units", "keeps the time of cancelled reservations", "the slowest of as many new calls took", newReservations},
	} {
		t.Run(tt.check+": "+tt.fault, func(t *testing.T) {
			if testing.Short() && tt.check == "healthy-server" && tt.fault != "stops after 429" {
				t.Skip("only make test-long runs it") // the same after other failures
			}
			m := scorecard.Run(t, tt.client, tt.check)[0]
			require.Equal(t, scorecard.Failed, m.Result, m)
			require.Contains(t, m.Detail, tt.detail)
		})
	}
}

// changing returns a function that builds clients which change each request.
func changing(change func(*http.Request)) func(base http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			sent := r.Clone(r.Context())
			change(r)
			return base.RoundTrip(sent)
		})
	}
}

// TestRun_bodiesMayBeClosedLater checks that a client may close the body of a request after it
// has returned, as the comment of http.RoundTripper allows.
func TestRun_bodiesMayBeClosedLater(t *testing.T) {
	m := scorecard.Run(t, func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(r.Body)
			sent := r.Clone(r.Context())
			sent.Body = io.NopCloser(bytes.NewReader(body))
			resp, err := base.RoundTrip(sent)
			go func() {
				for range 100 {
					runtime.Gosched()
				}
				r.Body.Close()
			}()
			return resp, err
		})
	}, "contract")[0]
	require.Equal(t, scorecard.Passed, m.Result, m)
}

// resending sends each request again and again.
func resending(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		for {
			sent := r.Clone(r.Context())
			sent.Body, sent.ContentLength = io.NopCloser(strings.NewReader("x")), 1
			if resp, err := base.RoundTrip(sent); err == nil {
				resp.Body.Close()
			}
		}
	})
}

// TestRun_figures checks the worst figure of clients whose faults have a known size, in the
// unit of the check.
func TestRun_figures(t *testing.T) {
	for check, tt := range map[string]struct {
		client func(base http.RoundTripper) http.RoundTripper
		want   float64
	}{
		"contract": {func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(*http.Request) (*http.Response, error) { return nil, nil })
		}, 2},
		"healthy-server": {func(base http.RoundTripper) http.RoundTripper { return base }, 1},
		"request-body":   {func(base http.RoundTripper) http.RoundTripper { return &retrier{base: withoutBody(base), stale: true} }, 1},
		"early-retry":    {func(base http.RoundTripper) http.RoundTripper { return &retrier{base: base, early: true} }, 1.35}, // half of 2.7 s: the date has whole seconds
		"duplicate-post": {func(base http.RoundTripper) http.RoundTripper { return &retrier{base: base, unsafe: true} }, 1},
		"herd":           {func(base http.RoundTripper) http.RoundTripper { return &retrier{base: base, synchronous: true} }, 40},
		"retry-bound":    {newRetrier, 3},
		"nested-retries": {func(base http.RoundTripper) http.RoundTripper { return &retrier{base: base, nested: true} }, 9},
		"last-response":  {func(base http.RoundTripper) http.RoundTripper { return &retrier{base: base, discards: true} }, 1},
		"leaks":          {lingering(time.Hour), 40},
		"deadline":       {sleepingAfter(3 * time.Second), 3},
		"useless-wait":   {func(base http.RoundTripper) http.RoundTripper { return &retrier{base: base, patient: true} }, 10},
		"endless-body":   {reading(100 << 10), 104},
		"stalled-body":   {sleepingAfter(7 * time.Second), 7},
		"upload-buffer":  {uploading(100 << 10), 100},
		"response-body":  {buffering, 1},
		"dialects":       {func(base http.RoundTripper) http.RoundTripper { return base }, 20},
		"lost-units":     {sleepingAfter(1500 * time.Millisecond), 1.6}, // with the 100 ms of the server
	} {
		m := scorecard.Run(t, tt.client, check)[0]
		require.InDelta(t, tt.want, m.Figure, 1e-6, "%s: %v", check, m)
	}
}

// TestRun_figuresOfBrokenTrials checks that clients that read or wait without end have a figure
// above the limit.
func TestRun_figuresOfBrokenTrials(t *testing.T) {
	draining := func(base http.RoundTripper) http.RoundTripper { return &retrier{base: base, drains: true} }
	for _, tt := range []struct {
		check  string
		client func(base http.RoundTripper) http.RoundTripper
		want   float64
		detail string
	}{
		{"endless-body", buffering, 16 << 10, "200: the client read more than 16 MiB"},
		{"endless-body", draining, 16 << 10, "500: the client read more than 16 MiB"},
		{"stalled-body", buffering, 3 * 3600, "200 that stops: a call had not ended after 3h0m0s"},
		{"stalled-body", draining, 3 * 3600, "429 that stops: a call had not ended after 3h0m0s"},
	} {
		m := scorecard.Run(t, tt.client, tt.check)[0]
		require.InDelta(t, tt.want, m.Figure, 64, m) // of a body, the last read
		require.Greater(t, m.Figure, m.Limit)
		require.Equal(t, tt.detail, m.Detail)
	}
}

// TestRun_herdInTens checks a client whose callers come back in tens, 20 ms apart, as many as
// the server admits within any 20 ms.
func TestRun_herdInTens(t *testing.T) {
	for apart, want := range map[time.Duration]scorecard.Result{20 * time.Millisecond: scorecard.Passed, 20*time.Millisecond - 1: scorecard.Failed} {
		m := scorecard.Run(t, func(base http.RoundTripper) http.RoundTripper {
			var rejected atomic.Int64
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				for {
					resp, err := base.RoundTrip(r)
					if err != nil || resp.StatusCode == http.StatusOK {
						return resp, err
					}
					resp.Body.Close()
					if err := sleep(r.Context(), time.Second+time.Duration((rejected.Add(1)-1)/10)*apart); err != nil {
						return nil, err
					}
				}
			})
		}, "herd")[0]
		require.Equal(t, want, m.Result, m)
	}
}

// sleepingAfter returns a function that builds clients which wait after each response.
func sleepingAfter(d time.Duration) func(base http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(r)
			time.Sleep(d)
			return resp, err
		})
	}
}

// reading returns a function that builds clients which read n bytes of each successful response.
func reading(n int64) func(base http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(r)
			if err == nil && resp.StatusCode == http.StatusOK {
				_, _ = io.CopyN(io.Discard, resp.Body, n)
			}
			return resp, err
		})
	}
}

// uploading returns a function that builds clients which read n bytes of a request before they
// send it.
func uploading(n int64) func(base http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			first, _ := io.ReadAll(io.LimitReader(r.Body, n))
			sent := r.Clone(r.Context())
			sent.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(bytes.NewReader(first), r.Body), r.Body}
			return base.RoundTrip(sent)
		})
	}
}

// TestRun_everyCheckCanFail checks that TestRun_faults has a fault for every check.
func TestRun_everyCheckCanFail(t *testing.T) {
	require.Equal(t, []string{
		"contract", "early-retry", "request-body", "response-body", "duplicate-post", "herd", "retry-bound",
		"nested-retries", "last-response", "leaks", "deadline", "useless-wait", "long-wait", "endless-body",
		"stalled-body", "upload-buffer", "healthy-server", "dialects", "lost-units",
	}, scorecard.Names(), "add a fault of the new check to TestRun_faults")
}

// withoutBody makes net/http send a consumed body as an empty one. It rejects a body that is
// shorter than ContentLength.
func withoutBody(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Body == nil {
			return base.RoundTrip(r)
		}
		b, _ := io.ReadAll(r.Body)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		return base.RoundTrip(r)
	})
}

// buffering reads complete responses and ignores errors.
func buffering(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(b))
		return resp, nil
	})
}

// stoppingAfter returns a function that builds clients which send nothing for 10 s after each
// failure with a status. The status of a failure without a response is 0.
func stoppingAfter(failure func(status int) bool) func(base http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		var mu sync.Mutex
		var until time.Time
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			wait := time.Until(until)
			mu.Unlock()
			if err := sleep(r.Context(), wait); err != nil {
				return nil, err
			}
			resp, err := base.RoundTrip(r)
			status := 0
			if err == nil {
				status = resp.StatusCode
			}
			if failure(status) {
				mu.Lock()
				until = time.Now().Add(10 * time.Second)
				mu.Unlock()
			}
			return resp, err
		})
	}
}

// TestRun_slowClientsReadLimits checks a client that makes 30 calls in two minutes, the maximum.
func TestRun_slowClientsReadLimits(t *testing.T) {
	require.Equal(t, scorecard.Passed, scorecard.Run(t, sleeping(20*time.Second), "dialects")[0].Result)
}

// sleeping returns a function that builds clients which wait before each call.
func sleeping(d time.Duration) func(base http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			time.Sleep(d)
			return base.RoundTrip(r)
		})
	}
}

// lingering returns a function that builds clients which leave a goroutine for d after each
// call.
func lingering(d time.Duration) func(base http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			go time.Sleep(d)
			return base.RoundTrip(r)
		})
	}
}

// A pool is a client with a goroutine that CloseIdleConnections ends.
type pool struct {
	http.RoundTripper
	start  sync.Once
	closed chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (p *pool) RoundTrip(r *http.Request) (*http.Response, error) {
	p.start.Do(func() { go func() { <-p.closed }() })
	return p.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections.
func (p *pool) CloseIdleConnections() { close(p.closed) }

// TestRun_leaksAreWhatIsLeftInTheEnd checks that goroutines which end later than their call, or
// with CloseIdleConnections, are no leaks.
func TestRun_leaksAreWhatIsLeftInTheEnd(t *testing.T) {
	for name, client := range map[string]func(base http.RoundTripper) http.RoundTripper{
		"idle timeout": lingering(14*time.Minute + 30*time.Second),
		"pool": func(base http.RoundTripper) http.RoundTripper {
			return &pool{RoundTripper: base, closed: make(chan struct{})}
		},
	} {
		m := scorecard.Run(t, client, "leaks")[0]
		require.Equal(t, scorecard.Passed, m.Result, "%s: %v", name, m)
	}
}

// newLeakySlots returns a client with 30 slots that loses those of calls that fail.
func newLeakySlots(base http.RoundTripper) http.RoundTripper {
	slots := make(chan struct{}, 30)
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		select {
		case slots <- struct{}{}:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		resp, err := base.RoundTrip(r)
		if err == nil {
			<-slots
		}
		return resp, err
	})
}

// newReservations returns a client that sends 50 requests a second and does not give back the
// reservations of calls that are cancelled.
func newReservations(base http.RoundTripper) http.RoundTripper {
	var mu sync.Mutex
	var next time.Time
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		if now := time.Now(); next.Before(now) {
			next = now
		}
		wait := time.Until(next)
		next = next.Add(20 * time.Millisecond)
		mu.Unlock()
		if err := sleep(r.Context(), wait); err != nil {
			return nil, err
		}
		return base.RoundTrip(r)
	})
}

// TestCheck_reports runs this test binary again, because a failed check fails its test.
func TestCheck_reports(t *testing.T) {
	if os.Getenv("HEEDTEST_CHECK") != "" {
		heedtest.Check(t, newRetrier, heedtest.Waiver{Check: "dialects", Reason: "the server has no limits"})
		t.Run("faulty", func(t *testing.T) {
			heedtest.Check(t, func(base http.RoundTripper) http.RoundTripper { return base },
				heedtest.Waiver{Check: "leaks", Reason: "unused"}, heedtest.Waiver{Check: "herd"}, heedtest.Waiver{Check: "leak", Reason: "misspelt"})
		})
		return
	}
	args := []string{"-test.run=TestCheck_reports", "-test.v"}
	if testing.Short() {
		args = append(args, "-test.skip=/healthy-server|/faulty/healthy-server") // see checksIfShort
	}
	program := exec.CommandContext(t.Context(), os.Args[0], args...)
	program.Env = append(os.Environ(), "HEEDTEST_CHECK=1")
	out, err := program.CombinedOutput()
	require.Error(t, err)
	for _, want := range []string{
		"--- PASS: TestCheck_reports/leaks",
		"--- SKIP: TestCheck_reports/dialects",
		"waived: the server has no limits",
		"--- FAIL: TestCheck_reports/faulty/dialects",
		"dialects: failed: 20 rejected, limit 0: RateLimit: 20 requests",
		"--- SKIP: TestCheck_reports/faulty/herd",
		"herd: not applicable",
		"leaks: passed: 0 leaks, limit 0; the waiver is not needed: unused",
		"the waiver {Check:herd Reason:} has no reason or names no check",
		"the waiver {Check:leak Reason:misspelt} has no reason or names no check",
	} {
		require.Contains(t, string(out), want)
	}
	require.Equal(t, 1, strings.Count(string(out), "--- FAIL: TestCheck_reports/faulty/"))
}
