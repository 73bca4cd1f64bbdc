package heedtest

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
)

// Script returns a Server.Respond function that returns the responses in order, one for each
// request, and after the last of them the zero Response.
func Script(responses ...Response) func(Request) Response {
	var next atomic.Int64
	return script(&next, responses)
}

// ExactScript is Script for a test in which exactly as many requests arrive as there are
// responses. It fails t when t ends if there were fewer or more.
func ExactScript(t testing.TB, responses ...Response) func(Request) Response {
	t.Helper()
	var next atomic.Int64
	t.Cleanup(func() {
		t.Helper() // so that the failure has the line of the script
		if n := next.Load(); n != int64(len(responses)) {
			t.Errorf("heedtest: ExactScript: %d requests arrived for %d responses", n, len(responses))
		}
	})
	return script(&next, responses)
}

// script returns the Respond function of a script. It counts requests in next.
func script(next *atomic.Int64, responses []Response) func(Request) Response {
	return func(Request) Response {
		if i := next.Add(1) - 1; i < int64(len(responses)) {
			return responses[i]
		}
		return Response{}
	}
}

// Routes returns a Server.Respond function that calls the function of the pattern that matches
// the request. Patterns are those of http.ServeMux, such as "GET /items/{id}". A nil function
// returns the zero Response. Without a match the response is that of http.ServeMux: 404, 405,
// or a redirect to the path in its shortest form. Routes panics if a pattern is invalid or
// conflicts with another.
func Routes(routes map[string]func(Request) Response) func(Request) Response {
	mux := http.NewServeMux()
	for pattern, respond := range routes {
		mux.Handle(pattern, route(respond))
	}
	return func(r Request) Response {
		target, err := url.ParseRequestURI(r.URL)
		if err != nil { // the target of a CONNECT is a host
			target = &url.URL{Path: "/"}
		}
		req := &http.Request{Method: r.Method, URL: target, Host: r.Host, Header: r.Header}
		handler, _ := mux.Handler(req)
		if respond, ok := handler.(route); ok {
			return respond.response(r)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		return Response{Status: w.Code, Header: w.Header(), Body: w.Body.String()}
	}
}

// A route is a Respond function that an http.ServeMux can hold.
type route func(Request) Response

func (f route) response(r Request) Response {
	if f == nil {
		return Response{}
	}
	return f(r)
}

// ServeHTTP implements http.Handler. It is not called, because a Response is written elsewhere.
func (f route) ServeHTTP(http.ResponseWriter, *http.Request) {}
