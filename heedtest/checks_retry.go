package heedtest

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// respondFirst returns a Respond function that responds with first to the first request of
// each call, and with later to its other requests.
func respondFirst(first, later Response) func(Request) Response {
	known := newSet()
	return func(r Request) Response {
		if known.add(r.Header.Get(callHeader)) {
			return first
		}
		return later
	}
}

// always returns a Respond function that responds to all requests with a.
func always(a Response) func(Request) Response { return func(Request) Response { return a } }

// status returns a Response with the headers, given as name, value, name, value.
func status(code int, headers ...string) Response {
	a := Response{Status: code, Header: http.Header{}}
	for i := 0; i < len(headers); i += 2 {
		a.Header.Set(headers[i], headers[i+1])
	}
	return a
}

// checkEarlyRetry checks that a retry waits until Retry-After has elapsed.
//
// Harm: A retry before that adds load to a server that asked for less, and many servers extend
// the ban.
// Source: RFC 9110, section 10.2.3; RFC 6585, section 4.
func checkEarlyRetry(e *evaluation) {
	for name, server := range inOrder(map[string]*Server{
		"429, seconds": {Respond: respondFirst(status(429, "Retry-After", "2"), Response{})},
		"503, seconds": {Respond: respondFirst(status(503, "Retry-After", "2"), Response{})},
		"429, date":    {Respond: respondFirst(status(429, "Retry-After", "3"), Response{}), EditHeader: RetryDate},
		"503, date":    {Respond: respondFirst(status(503, "Retry-After", "3"), Response{}), EditHeader: RetryDate},
	}) {
		e.trial(name, server, func(tr *trial) func() {
			for range 5 { // jitter may be early only sometimes
				tr.get(0)
			}
			var early time.Duration
			for _, r := range tr.server.EarlyRetries() {
				early = max(early, r.EarlyBy)
			}
			if tr.retries() == 0 {
				return func() {}
			}
			return func() {
				e.measured(early.Seconds(), "%s: a retry came %v before Retry-After had elapsed", name, early)
			}
		})
	}
}

// checkRequestBody checks that every attempt has the complete body.
//
// Harm: An attempt with an empty or incomplete body overwrites data, and the server reports
// success.
// Source: net/http.Request.GetBody; issues go-resty/resty #47, gojek/heimdall #43.
func checkRequestBody(e *evaluation) {
	small, large := "the complete body", strings.Repeat("0123456789abcdef", 20<<10)
	for name, body := range inOrder(map[string]func(string) io.Reader{
		"known type": func(s string) io.Reader { return strings.NewReader(s) },
		"stream":     func(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) },
	}) {
		for _, first := range []Response{status(503, "Retry-After", "0"), status(429, "Retry-After", "0"), status(503), {Fault: Drop}} {
			for _, text := range []string{small, large} {
				e.trial(name, &Server{Respond: respondFirst(first, Response{})}, func(tr *trial) func() {
					tr.base.maxSends = 50 // each keeps its body
					tr.call(http.MethodPut, body(text), 0)
					wrong := 0
					for _, r := range tr.server.Requests() {
						if r.BodyErr == nil && string(r.Body) != text {
							wrong++
						}
					}
					if tr.retries() == 0 && wrong == 0 {
						return func() {}
					}
					return func() {
						e.measured(float64(wrong), "%s of %d bytes: %d requests arrived with another body", name, len(text), wrong)
					}
				})
			}
		}
	}
}

// checkDuplicatePost checks that a POST or PATCH that may have been processed is not repeated.
//
// Harm: A repetition creates a second order.
// Source: RFC 9110, section 9.2.2.
func checkDuplicatePost(e *evaluation) {
	for name, first := range inOrder(map[string]Response{
		"500":                 status(500),
		"502":                 status(502),
		"504":                 status(504),
		"connection closed":   {Fault: Drop},
		"connection reset":    {Fault: Reset},
		"incomplete response": {Fault: CutBody},
	}) {
		for _, method := range []string{http.MethodPost, http.MethodPatch} {
			e.trial(name, &Server{Respond: respondFirst(first, Response{})}, func(tr *trial) func() {
				tr.get(0) // so that the connection is not new
				before := len(tr.server.Requests())
				tr.call(method, strings.NewReader("an order"), 0)
				repeated := len(tr.server.Requests()) - before - 1
				return func() {
					e.measured(float64(repeated), "%s after %s was sent again, although it may have been processed", method, name)
				}
			})
		}
	}
}

// checkHerd checks that callers that were rejected together do not come back together.
//
// Harm: Most of them are rejected again, and a server that could serve them one after another
// is overloaded. The limit is what the server admits in a second.
// Source: issues hivecommons/hive #4640, kubernetes-sigs/release-sdk #11.
func checkHerd(e *evaluation) {
	const callers, rate = 50, 10
	window := newWindow(rate, time.Second)
	server := &Server{Respond: func(r Request) Response {
		a := status(429, "Retry-After", "1")
		if window.take(r.At) {
			a = Response{}
		}
		a.Delay = 5 * time.Millisecond // without any latency the order of events is random
		return a
	}}
	server.Key = func(r *http.Request) string { return r.Header.Get(callHeader) }
	e.trial("herd", server, func(tr *trial) func() {
		tr.together(callers, 0)
		if tr.retries() == 0 {
			return func() {}
		}
		requests := tr.server.Requests()
		start := requests[0].At
		later := slices.DeleteFunc(requests, func(r Request) bool { return r.At.Sub(start) <= time.Second/2 })
		peak := len(Busiest(later, 20*time.Millisecond))
		return func() {
			e.measured(float64(peak), "%d of %d callers came back within 20 ms to a server that admits %d per second", peak, callers, rate)
		}
	})
}

// checkRetryBound checks that a call to a server that always fails is sent a bounded number of
// times.
//
// Harm: Unbounded retries keep an overloaded server down.
// Source: Google, Site Reliability Engineering, chapter 21 ("Handling Overload"): at most
// three attempts. The limit allows for rejections that state when to return.
func checkRetryBound(e *evaluation) {
	for name, a := range inOrder(map[string]Response{
		"500":               status(500),
		"503":               status(503),
		"429":               status(429),
		"429, Retry-After":  status(429, "Retry-After", "1"),
		"connection closed": {Fault: Drop},
	}) {
		e.trial(name, &Server{Respond: always(a)}, func(tr *trial) func() {
			tr.get(0)
			n := len(tr.server.Requests())
			return func() { e.measured(float64(n), "%s: one call was sent %d times", name, n) }
		})
	}
}

// checkNestedRetries checks that three layers of the client send no more requests than one.
//
// Harm: Retries of several layers multiply: three layers of three attempts send 27 requests.
// Source: issues HKUDS/nanobot #2760, microsoft/openaivec #186.
func checkNestedRetries(e *evaluation) {
	single := 0
	server := func() *Server { return &Server{Respond: always(status(503))} }
	e.trial("one layer", server(), func(tr *trial) func() {
		tr.get(0)
		return func() { single = len(tr.server.Requests()) }
	})
	if single < 2 {
		return
	}
	one := e.newClient
	e.newClient = func(base http.RoundTripper) http.RoundTripper {
		for range 3 {
			base = one(base)
		}
		return base
	}
	e.trial("three layers", server(), func(tr *trial) func() {
		tr.get(0)
		n := len(tr.server.Requests())
		return func() {
			e.measured(float64(n)/float64(single), "three layers sent %d requests, one sends %d", n, single)
		}
	})
}

// checkLastResponse checks that the caller gets the last response, or its status in an error.
//
// Harm: Otherwise the caller cannot report why the server failed.
// Source: issues hashicorp/go-retryablehttp #212, #291.
func checkLastResponse(e *evaluation) {
	const text = "maintenance until noon"
	for _, code := range []int{503, 500, 429} {
		a := status(code)
		a.Body = text
		e.trial(strconv.Itoa(code), &Server{Respond: always(a)}, func(tr *trial) func() {
			r := tr.get(0)
			lost := 0.0
			if (r.status != code || r.body != text) && (r.err == nil || !strings.Contains(r.err.Error(), strconv.Itoa(code))) {
				lost = 1
			}
			return func() {
				e.measured(lost, "%d: the caller got neither the last response nor its status, but status %d and error %v", code, r.status, r.err)
			}
		})
	}
}
