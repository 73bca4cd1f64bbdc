package main

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// A gateway is a reverse proxy for two APIs with the limits of a file.
//
//	/users/…   ─▶ limits ─▶ one API
//	/orders/…  ─▶ limits ─▶ the other
//	/allow     ─▶ a decision, for clients that do the work elsewhere
type gateway struct {
	limits  *rules.File
	handler http.Handler
}

// gatewayConfig is what a gateway needs. Copies that share their counts need the same clients.
type gatewayConfig struct {
	file          string // with the limits
	users, orders *url.URL
	clients       *clients                                     // nil: clients have no tokens, and /allow is not served
	address       throttlehttp.IP                              // behind a balancer: which proxies are trusted
	build         func(*rules.Limit) (throttle.Limiter, error) // of limits that are not in this process; may be nil
	onReload      func(error)                                  // called after each reload of the file; may be nil
	tenants       *tenantLimits                                // nil: no limit for each tenant
	operations    *operations
	timeout       time.Duration // of an API until its response begins
}

// rulesConfig returns what the file with the limits refers to.
func (c gatewayConfig) rulesConfig() rules.Config {
	return rules.Config{Build: c.build, Values: map[string]func(*http.Request) (string, bool){
		"client":         clientOrAddress(c.address.Key),
		"remote_address": c.address.Key,
	}}
}

// newGateway returns a gateway. A request passes in this order:
//
//	wrong tokens of its address ─▶ its token ─▶ limits of its address, client and tenant ─▶ API
//
// So a key is never what a client invented: it is the name of a client whose token is valid, or an
// address.
func newGateway(c gatewayConfig) (*gateway, error) {
	g := &gateway{limits: &rules.File{
		Path:     c.file,
		OnReload: c.onReload,
		Config:   c.rulesConfig(),
	}}
	if err := g.limits.Open(); err != nil {
		return nil, fmt.Errorf("gateway: the limits in %s: %w", c.file, err)
	}
	trace := traceOf(c.operations.metrics)
	limited := &throttlehttp.Middleware{Limits: g.limits.Limits, Trace: trace}
	if c.tenants != nil {
		limited.Rules = []throttlehttp.Rule{c.tenants.rule(c.clients != nil)}
	}
	mux := http.NewServeMux()
	mux.Handle("/users/", limited.Handler(proxy(c.users, c.timeout)))
	mux.Handle("/orders/", limited.Handler(proxy(c.orders, c.timeout)))
	if c.clients != nil {
		mux.Handle("GET /allow", allow(g.limits, trace))
	}
	g.handler = limitGuesses(c.address.Key, c.clients.authenticated(mux))
	return g, nil
}

// limitHeaders are what the Middleware states. Those of an API would be a second set.
var limitHeaders = []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-RateLimit-Reset-After", "RateLimit", "RateLimit-Policy"}

func proxy(to *url.URL, timeout time.Duration) http.Handler {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout, transport.MaxIdleConnsPerHost = timeout, 100
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.SetXForwarded()
			if name := clientOf(r.In).name; name != "" {
				r.Out.Header.Set(tenantHeader, name)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			for _, name := range limitHeaders {
				resp.Header.Del(name)
			}
			return nil
		},
		Transport: transport,
	}
}

// ServeHTTP implements http.Handler.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

// close stops watching the file.
func (g *gateway) close() error { return g.limits.Close() }
