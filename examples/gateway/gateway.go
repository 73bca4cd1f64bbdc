package main

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// A gateway stands before two APIs, and lets through what a file of limits allows.
//
//	/users/…   ─▶ limits ─▶ one API
//	/orders/…  ─▶ limits ─▶ the other
//	/allow     ─▶ a decision, for whoever does the work elsewhere
type gateway struct {
	limits *rules.File
	mux    *http.ServeMux
}

// newGateway returns a gateway before users and orders, with the limits in the file at
// path. Copies that share their counts must have the same secret, or each has names of
// its own for the same clients. build is where limits are kept; nil: in this process.
// tell hears of reloads.
func newGateway(path string, users, orders *url.URL, secret []byte, build func(*rules.Limit) (throttle.Limiter, error), onReload func(error)) (*gateway, error) {
	// A client is who has a token, or else who has an address. Behind a balancer of
	// your own name it in IP.Trusted, or all clients are one.
	tokens := &throttlehttp.Secrets{Key: secret}
	client := throttlehttp.FirstOf(tokens.Bearer, throttlehttp.IP{}.Key)
	g := &gateway{mux: http.NewServeMux(), limits: &rules.File{
		Path:     path,
		OnReload: onReload,
		Config:   rules.Config{Build: build, Values: map[string]func(*http.Request) (string, bool){"client": client}},
	}}
	if err := g.limits.Open(); err != nil {
		return nil, fmt.Errorf("gateway: the limits in %s: %w", path, err)
	}
	limited := &throttlehttp.Middleware{Limits: g.limits.Limits}
	g.mux.Handle("/users/", limited.Handler(proxy(users)))
	g.mux.Handle("/orders/", limited.Handler(proxy(orders)))
	g.mux.Handle("GET /allow", allow(g.limits))
	return g, nil
}

func proxy(to *url.URL) http.Handler {
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.SetXForwarded()
	}}
}

// ServeHTTP implements http.Handler.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.mux.ServeHTTP(w, r) }

// close ends the watching of the file.
func (g *gateway) close() error { return g.limits.Close() }
