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

// A gateway is a reverse proxy for two APIs with the limits of a file.
//
//	/users/…   ─▶ limits ─▶ one API
//	/orders/…  ─▶ limits ─▶ the other
//	/allow     ─▶ a decision, for services that do the work elsewhere
type gateway struct {
	limits *rules.File
	mux    *http.ServeMux
}

// newGateway returns a gateway for users and orders, with the limits in the file at path.
// Copies that share their counts must have the same secret, because the keys of clients
// depend on it. build returns the limiter of a limit; nil means a limiter in this process.
// onReload is called after each reload of the file. tenants adds a limit for each tenant; nil
// means none.
func newGateway(path string, users, orders *url.URL, secret []byte, build func(*rules.Limit) (throttle.Limiter, error), onReload func(error), tenants *tenantLimits) (*gateway, error) {
	// A client is identified by its token, or else by its address. If a load balancer is in
	// front of the gateway, add it to IP.Trusted; otherwise all clients share one address.
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
	if tenants != nil {
		limited.Rules = []throttlehttp.Rule{tenants.rule()}
	}
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

// close stops watching the file.
func (g *gateway) close() error { return g.limits.Close() }
