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

// checkContract checks what the comment of http.RoundTripper promises.
//
// Harm: net/http and programs rely on a response with a body or an error, and on a request
// that is closed and not modified: a caller that uses the request again sends something else.
// Source: net/http.RoundTripper.
func checkContract(e *evaluation) {
	for name, a := range inOrder(map[string]Response{
		"200":               {},
		"204":               {Status: 204, Header: http.Header{"Content-Length": {"0"}}},
		"500":               status(500),
		"429":               status(429, "Retry-After", "1"),
		"connection closed": {Fault: Drop},
	}) {
		e.trial(name, &Server{Respond: respondFirst(a, Response{})}, func(tr *trial) func() {
			violations := tr.violations(tr.ctx)
			return func() {
				e.measured(float64(len(violations)), "%s: %s", name, strings.Join(violations, ", "))
			}
		})
	}
	e.trial("cancelled", &Server{}, func(tr *trial) func() {
		ctx, cancel := context.WithCancel(tr.ctx)
		cancel()
		violations := tr.violations(ctx)
		return func() {
			e.measured(float64(len(violations)), "a request whose context has ended: %s", strings.Join(violations, ", "))
		}
	})
}

// violations makes a POST and returns the rules of http.RoundTripper that the client violates.
func (tr *trial) violations(ctx context.Context) (v []string) {
	body := &closeRecorder{Reader: strings.NewReader("body")}
	req := tr.request(ctx, http.MethodPost, body)
	req.ContentLength = 4
	url, header := *req.URL, req.Header.Clone()
	before := *req
	resp, err := tr.client.RoundTrip(req)
	switch {
	case err == nil && resp == nil:
		v = append(v, "neither a response nor an error")
	case err != nil && resp != nil:
		v = append(v, "a response and an error")
	case err == nil && resp.Body == nil:
		v = append(v, "a response without a body")
	}
	if resp != nil && resp.Body != nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	for field, same := range inOrder(map[string]bool{
		"URL":           req.URL == before.URL && *req.URL == url,
		"Header":        maps.EqualFunc(req.Header, header, slices.Equal),
		"Method":        req.Method == before.Method,
		"Host":          req.Host == before.Host,
		"Body":          req.Body == before.Body,
		"GetBody":       (req.GetBody == nil) == (before.GetBody == nil),
		"ContentLength": req.ContentLength == before.ContentLength,
		"Context()":     req.Context() == before.Context(),
	}) {
		if !same {
			v = append(v, "the "+field+" of the request was changed")
		}
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

// checkResponseBody checks that a response that ends early is reported as an error.
//
// Harm: An incomplete response that is taken for a complete one is stored as data.
// Source: RFC 9112, section 8.
func checkResponseBody(e *evaluation) {
	for name, fault := range inOrder(map[string]Fault{"closed": CutBody, "reset": ResetBody}) {
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

// checkLeaks checks that response bodies are closed and goroutines end after calls with all outcomes.
//
// Harm: A response body that is not closed keeps its connection, and a goroutine that does not
// end keeps its memory.
// Source: net/http.Response.Body, net/http.RoundTripper.
func checkLeaks(e *evaluation) {
	responses := []Response{
		status(503), status(500), status(429), {Fault: Drop}, status(429, "Retry-After", "1"), {},
		{Fault: CutBody}, {Fault: HangBody}, {Fault: Hang}, status(503, "Retry-After", "3600"),
	}
	var n atomic.Int64
	server := &Server{Respond: func(Request) Response { return responses[int(n.Add(1)-1)%len(responses)] }}
	e.trial("calls with all outcomes", server, func(tr *trial) func() {
		synctest.Wait() // a goroutine that has not started may not be counted
		before := bubbleGoroutines()
		for i := range 40 {
			tr.get(time.Duration(i%8+1) * 300 * time.Millisecond)
		}
		time.Sleep(15 * time.Minute)
		tr.base.CloseIdleConnections()
		if c, ok := tr.client.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
		bodies, _ := tr.base.counts()
		synctest.Wait()
		goroutines := max(0, bubbleGoroutines()-before)
		return func() {
			e.measured(float64(bodies+goroutines), "after 40 calls %d response bodies were open and %d goroutines were left", bodies, goroutines)
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
		if runtime.Stack(all, true) < len(all) {
			break
		}
		all = make([]byte, 2*len(all))
	}
	return bytes.Count(all, []byte("synctest bubble "+string(bubble)+"]"))
}

// checkDeadline checks that a call ends with its context, and with the error of the context.
//
// Harm: A call that outlives its context keeps its caller, and another error hides the reason.
// Source: package context; issue golang/go #54541.
func checkDeadline(e *evaluation) {
	const deadline = 2500 * time.Millisecond
	for name, a := range inOrder(map[string]Response{
		"no response":      {Fault: Hang},
		"endless body":     {Fault: Endless, ByteInterval: 100 * time.Millisecond},
		"body stops":       {Fault: HangBody},
		"503":              status(503),
		"503 of 400 ms":    {Status: 503, Delay: 400 * time.Millisecond},
		"429, Retry-After": status(429, "Retry-After", "1"),
		"long Retry-After": status(429, "Retry-After", "60"),
		"closed":           {Fault: Drop},
	}) {
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

// checkUselessWait checks that a call ends immediately if the server says that it cannot
// succeed before its deadline.
//
// Harm: The wait keeps the caller without a chance of success.
// Source: issues hashicorp/go-retryablehttp #272, cenkalti/backoff #181.
func checkUselessWait(e *evaluation) {
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

// checkLongWait checks that an absurd Retry-After does not stop a call without a deadline.
//
// Harm: Programs hang for days.
// Source: issues hashicorp/go-retryablehttp #247, #248, urllib3/urllib3 #3743.
func checkLongWait(e *evaluation) {
	for name, value := range inOrder(map[string]string{"a year": "31536000", "an overflow": "99999999999999999999", "a Unix time": "1767225600", "a day": "86400"}) {
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
