package heedtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"
)

// checkContract: net/http and programs rely on what the comment of http.RoundTripper
// promises: a response or an error, a response with a body, a request that is not modified
// and whose body is closed.
func checkContract(e *exam) {
	for name, a := range map[string]Response{
		"200":               {},
		"204":               {Status: 204, Header: http.Header{"Content-Length": {"0"}}},
		"500":               status(500),
		"429":               status(429, "Retry-After", "1"),
		"connection closed": {Fault: Drop},
	} {
		e.trial(name, &Server{Respond: respondFirst(a, Response{})}, func(tr *trial) func() {
			violations := tr.violations()
			return func() {
				e.measured(float64(len(violations)), "%s: %s", name, strings.Join(violations, ", "))
			}
		})
	}
}

// violations makes a POST and returns the rules of http.RoundTripper that the client violates.
func (tr *trial) violations() (v []string) {
	body := &closeRecorder{Reader: strings.NewReader("body")}
	req := tr.request(tr.ctx, http.MethodPost, body)
	req.ContentLength = 4
	url, header, ctx := *req.URL, req.Header.Clone(), req.Context()
	resp, err := tr.client.RoundTrip(req)
	switch {
	case err == nil && resp == nil:
		v = append(v, "neither a response nor an error")
	case err != nil && resp != nil:
		v = append(v, "a response and an error")
	case err == nil && resp.Body == nil:
		v = append(v, "a response without a Body")
	}
	if resp != nil && resp.Body != nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	if *req.URL != url || !maps.EqualFunc(req.Header, header, slices.Equal) || req.Method != http.MethodPost || req.Body != body || req.Context() != ctx {
		v = append(v, "the request was modified")
	}
	synctest.Wait() // the transport may close the body after it has returned
	if !body.closed.Load() {
		v = append(v, "the body of the request was not closed")
	}
	return v
}

// A closeRecorder is a body that records whether it was closed.
type closeRecorder struct {
	io.Reader
	closed atomic.Bool
}

// Close implements io.Closer.
func (c *closeRecorder) Close() error {
	c.closed.Store(true)
	return nil
}

// checkResponseBody: a response that ends early and is taken for a complete one is stored as
// data. RFC 9112, section 8.
func checkResponseBody(e *exam) {
	for name, fault := range map[string]Fault{"closed": CutBody, "reset": ResetBody} {
		for _, n := range []int{100, 100 << 10} {
			text := strings.Repeat("x", n)
			e.trial(name, &Server{Respond: always(Response{Body: text, Fault: fault})}, func(tr *trial) func() {
				r := tr.get(0)
				unnoticed := 0.0
				if r.err == nil && r.status == http.StatusOK && r.body != text {
					unnoticed = 1
				}
				return func() {
					e.measured(unnoticed, "%s: the caller got %d of %d bytes and no error", name, len(r.body), n)
				}
			})
		}
	}
}

// checkLeaks: a response body that is not closed keeps its connection, and a goroutine that
// does not end keeps its memory. net/http.Response.Body.
func checkLeaks(e *exam) {
	responses := []Response{
		status(503), status(500), status(429), {Fault: Drop}, status(429, "Retry-After", "1"), {},
		{Fault: CutBody}, {Fault: HangBody}, {Fault: Hang}, status(503, "Retry-After", "3600"),
	}
	var n atomic.Int64
	server := &Server{Respond: func(Request) Response { return responses[int(n.Add(1)-1)%len(responses)] }}
	e.trial("calls with all outcomes", server, func(tr *trial) func() {
		before := bubbleGoroutines()
		for i := range 40 {
			tr.get(time.Duration(i%8+1) * 300 * time.Millisecond)
		}
		body := &closeRecorder{Reader: strings.NewReader("body")}
		ctx, cancel := context.WithCancel(tr.ctx)
		cancel()
		tr.do(tr.request(ctx, http.MethodPost, body))
		time.Sleep(15 * time.Minute)
		tr.base.CloseIdleConnections()
		if c, ok := tr.client.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
		synctest.Wait()
		bodies, _ := tr.base.counts()
		goroutines := max(0, bubbleGoroutines()-before)
		requests := 0
		if !body.closed.Load() {
			requests = 1
		}
		return func() {
			e.measured(float64(bodies+goroutines+requests), "after 41 calls %d response bodies and %d request bodies were open, and %d goroutines were left", bodies, requests, goroutines)
		}
	})
}

// bubbleGoroutines returns the number of goroutines in the current bubble.
func bubbleGoroutines() int {
	own := make([]byte, 256)
	own = own[:runtime.Stack(own, false)]
	_, bubble, found := bytes.Cut(own, []byte("synctest bubble "))
	if !found {
		return 0
	}
	bubble, _, _ = bytes.Cut(bubble, []byte("]"))
	all := make([]byte, 1<<20)
	for len(all) < 64<<20 {
		n := runtime.Stack(all, true)
		if n < len(all) {
			all = all[:n]
			break
		}
		all = make([]byte, 2*len(all))
	}
	return bytes.Count(all, []byte("synctest bubble "+string(bubble)+"]"))
}

// checkDeadline: a call that outlives its context keeps its caller, and an error that is not
// that of the context hides the reason. context.Context; peers' issue golang/go #54541.
func checkDeadline(e *exam) {
	const deadline = 2500 * time.Millisecond
	for name, a := range map[string]Response{
		"no response":      {Fault: Hang},
		"endless body":     {Fault: Endless, ByteInterval: 100 * time.Millisecond},
		"body stops":       {Fault: HangBody},
		"503":              status(503),
		"503 of 400 ms":    {Status: 503, Delay: 400 * time.Millisecond},
		"429, Retry-After": status(429, "Retry-After", "1"),
		"long Retry-After": status(429, "Retry-After", "60"),
		"closed":           {Fault: Drop},
	} {
		for _, cancelled := range []bool{false, true} {
			e.trial(name, &Server{Respond: always(a)}, func(tr *trial) func() {
				ctx, cancel := context.WithTimeout(tr.ctx, deadline)
				want := context.DeadlineExceeded
				if cancelled {
					cancel()
					ctx, cancel = context.WithCancel(tr.ctx)
					want = context.Canceled
					time.AfterFunc(deadline, cancel)
				}
				defer cancel()
				r := tr.do(tr.request(ctx, http.MethodGet, nil))
				late := max(0, r.took-deadline)
				wrongError := r.took == deadline && r.err != nil && !errors.Is(r.err, want)
				return func() {
					e.measured(late.Seconds(), "%s: the call ended %v after its context", name, late)
					if wrongError {
						e.fail("%s: the context ended the call, but the error is not %v: %v", name, want, r.err)
					}
				}
			})
		}
	}
}

// checkUselessWait: if the server says that a request cannot succeed before the deadline, the
// wait keeps the caller without a chance. Peers' issues go-retryablehttp #272, backoff #181.
func checkUselessWait(e *exam) {
	const deadline = 10 * time.Second
	for _, code := range []int{429, 503} {
		e.trial("Retry-After: 60", &Server{Respond: always(status(code, "Retry-After", "60"))}, func(tr *trial) func() {
			r := tr.get(deadline)
			return func() {
				e.measured(r.took.Seconds(), "the call waited %v of its %v after a %d with Retry-After: 60", r.took, deadline, code)
			}
		})
	}
}

// checkLongWait: a wrong Retry-After must not stop a call without a deadline for days. Peers'
// issues go-retryablehttp #247, PR #248, urllib3 PR #3743.
func checkLongWait(e *exam) {
	for name, value := range map[string]string{"a year": "31536000", "an overflow": "99999999999999999999", "a Unix time": "1767225600", "a day": "86400"} {
		e.trial(name, &Server{Respond: always(status(429, "Retry-After", value))}, func(tr *trial) func() {
			ctx, cancel := context.WithTimeout(tr.ctx, maxVirtualTime-time.Hour)
			defer cancel()
			r := tr.do(tr.request(ctx, http.MethodGet, nil))
			return func() {
				e.measured(r.took.Seconds(), "a Retry-After of %s stopped a call for %v or more", name, r.took)
			}
		})
	}
}
