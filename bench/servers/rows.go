package main

import (
	"fmt"
	"regexp"
	"time"

	"github.com/heed-go/heed/bench/internal/simulation"
	"github.com/heed-go/heed/internal/serverrules"
	"github.com/heed-go/heed/throttle"
)

// A row is a server, and the shortest time that it allows.
type row struct {
	server string
	new    func() serverrules.Server
	ideal  ideal

	path   func(i int) string // path of call i; nil means that all calls use one path
	closes bool               // the server closes connections without a response

	// compared is set for bans, bare 403s, and rejections without or with a late response. Heed does not
	// recognize them, so its goal is to be no worse than go-retryablehttp.
	compared bool
}

// A goal bounds a job: QUOTA.md, section 7.
type goal struct {
	wasted int
	time   float64 // as a multiple of the ideal time
	failed int
}

// goals are those of the first and the second job, apart from the rows that are compared with
// go-retryablehttp.
var goals = [2]goal{{workers, 1.25, 0}, {5, 1.15, 0}}

const (
	window5  = 5 * time.Second
	window10 = 10 * time.Second
)

// nginx is limit_req with rate=20r/s and the given burst.
func nginx(burst, delay int64, noDelay bool, rejection serverrules.Reply) func() serverrules.Server {
	return func() serverrules.Server {
		return serverrules.Nginx(throttle.NginxConfig{Rate: 20, Per: time.Second, Burst: burst, Delay: delay, NoDelay: noDelay}, rejection)
	}
}

// haproxyRate is a rate of 50 per 2 s, as in shared/servers/haproxy.
func haproxyRate(c serverrules.HAProxyConfig) func() serverrules.Server {
	c.Limit, c.Per = 50, 2*time.Second
	return func() serverrules.Server { return serverrules.HAProxy(c) }
}

// rows returns all rows, in the order in which they are printed.
func rows() []row {
	bare, closed := serverrules.Reject, serverrules.Reject(444)
	inWindows5, inWindows1 := fromFirst(span{100, window5}), fromFirst(span{20, time.Second})
	clock5 := aligned(span{100, window5})
	haproxyIdeal := slidingFromFirst(span{50, 2 * time.Second})
	return []row{
		// Fixed windows and buckets with headers in every response.
		{server: "express-rate-limit, legacy headers, 100 per 5 s", ideal: inWindows5,
			new: func() serverrules.Server { return serverrules.Express(100, window5, serverrules.Legacy) }},
		{server: "express-rate-limit, draft-6, 100 per 5 s", ideal: inWindows5,
			new: func() serverrules.Server { return serverrules.Express(100, window5, serverrules.Draft6) }},
		{server: "express-rate-limit, draft-7, 100 per 5 s", ideal: inWindows5,
			new: func() serverrules.Server { return serverrules.Express(100, window5, serverrules.Draft7) }},
		{server: "express-rate-limit, draft-8, 100 per 5 s", ideal: inWindows5,
			new: func() serverrules.Server {
				return serverrules.Express(100, window5, serverrules.Draft8("100-in-5sec"))
			}},
		{server: "express-rate-limit, draft-8, 20 per 1 s and 100 per 10 s",
			ideal: fromFirst(span{20, time.Second}, span{100, window10}),
			new:   func() serverrules.Server { return serverrules.ExpressTwice(20, time.Second, 100, window10) }},
		{server: "hono-rate-limiter, draft-6, 20 per 1 s", ideal: inWindows1,
			new: func() serverrules.Server { return serverrules.Express(20, time.Second, serverrules.Draft6) }},
		{server: "hono-rate-limiter, draft-7, 100 per 5 s", ideal: inWindows5,
			new: func() serverrules.Server { return serverrules.Express(100, window5, serverrules.Draft7) }},
		{server: "fastify rate-limit, 100 per 5 s", ideal: inWindows5,
			new: func() serverrules.Server { return serverrules.Fastify(100, window5) }},
		{server: "fastify rate-limit, 20 per 1 s", ideal: inWindows1,
			new: func() serverrules.Server { return serverrules.Fastify(20, time.Second) }},
		{server: "koa-ratelimit, 100 per 5 s", ideal: inWindows5,
			new: func() serverrules.Server { return serverrules.Koa(100, window5) }},
		{server: "tollbooth, 20/s", ideal: bucket(20, 20),
			new: func() serverrules.Server { return tollbooth(20) }},
		{server: "throttled, 20/s burst 20", ideal: bucket(20, 20),
			new: func() serverrules.Server { return gcra(20, 20) }},

		// Limits that only rejections describe.
		{server: "Rack::Attack, RateLimit headers, 100 per 5 s", ideal: clock5,
			new: func() serverrules.Server { return serverrules.RackAttack(100, window5, serverrules.RackReadme) }},
		{server: "Rack::Attack, Retry-After, 100 per 5 s", ideal: clock5,
			new: func() serverrules.Server {
				return serverrules.RackAttack(100, window5, serverrules.RackRetryAfter)
			}},
		{server: "Rack::Attack, bare 429, 100 per 5 s", ideal: clock5,
			new: func() serverrules.Server { return serverrules.RackAttack(100, window5, serverrules.RackBare) }},
		{server: "mod_qos, bare 429, 100 per 5 s", ideal: inWindows5,
			new: func() serverrules.Server { return serverrules.ModQoS(100, window5) }},

		// nginx: shared/servers/nginx, ports 18001 to 18003, and other statuses.
		{server: "nginx, 429, 20/s burst 20", ideal: bucket(20, 21),
			new: nginx(20, 0, true, bare(429))},
		{server: "nginx, 503, 20/s burst 20", ideal: bucket(20, 21), new: nginx(20, 0, true, bare(503))},
		{server: "nginx, 403, 20/s burst 20", ideal: bucket(20, 21), compared: true, new: nginx(20, 0, true, bare(403))},
		{server: "nginx, 444, 20/s burst 20", ideal: bucket(20, 21), compared: true, closes: true,
			new: nginx(20, 0, true, closed)},
		{server: "nginx, 503, 20/s burst 20, delayed", ideal: queued(20, 1), new: nginx(20, 0, false, bare(503))},
		{server: "nginx, 429, 20/s burst 20, delay 10", ideal: queued(20, 11), new: nginx(20, 10, false, bare(429))},
		{server: "nginx, 429, 20/s without burst", ideal: bucket(20, 1), new: nginx(0, 0, true, bare(429))},
		{server: "nginx, 429 Retry-After: 1, 20/s without burst", ideal: bucket(20, 1),
			new: nginx(0, 0, true, serverrules.RejectFor(429, "1"))},

		// HAProxy: shared/servers/haproxy, ports 18101 to 18103, and other rejections.
		{server: "HAProxy, bare 429, 50 per 2 s", ideal: haproxyIdeal,
			new: haproxyRate(serverrules.HAProxyConfig{Rejection: bare(429)})},
		{server: "HAProxy, Retry-After: 2, 50 per 2 s", ideal: haproxyIdeal,
			new: haproxyRate(serverrules.HAProxyConfig{Rejection: serverrules.RejectFor(429, "2")})},
		{server: "HAProxy, bare 429, rejected not counted", ideal: haproxyIdeal,
			new: haproxyRate(serverrules.HAProxyConfig{Rejection: bare(429), OnlyAccepted: true})},
		{server: "HAProxy, bare 503, 50 per 2 s", ideal: haproxyIdeal,
			new: haproxyRate(serverrules.HAProxyConfig{Rejection: bare(503)})},
		{server: "HAProxy, remaining without reset, 50 per 2 s", ideal: haproxyIdeal,
			new: haproxyRate(serverrules.HAProxyConfig{Rejection: bare(429), StateRemaining: true})},
		{server: "HAProxy, tarpit 3 s, 50 per 2 s", ideal: haproxyIdeal, compared: true,
			new: haproxyRate(serverrules.HAProxyConfig{Rejection: serverrules.Reply{Status: 429, Delay: 3 * time.Second}})},
		{server: "HAProxy, silent-drop, 50 per 2 s", ideal: haproxyIdeal, compared: true, closes: true,
			new: haproxyRate(serverrules.HAProxyConfig{Rejection: serverrules.Reply{Hang: true}})},

		// Penalties after a breach.
		{server: "mod_evasive, 403, 20 per 1 s, block 10 s", ideal: aligned(span{20, time.Second}), compared: true,
			new: func() serverrules.Server { return serverrules.ModEvasive(20, window10, 403) }},
		{server: "mod_evasive, 429, 20 per 1 s, block 10 s", ideal: aligned(span{20, time.Second}), compared: true,
			new: func() serverrules.Server { return serverrules.ModEvasive(20, window10, 429) }},
		{server: "Allow2Ban, 403, 20 per 1 s, ban 5 s", ideal: aligned(span{19, time.Second}), compared: true,
			new: func() serverrules.Server { return serverrules.Allow2Ban(20, time.Second, window5) }},
		{server: "Varnish vsthrottle, 429, 100 per 5 s, block 10 s", ideal: bucket(20, 100), compared: true,
			new: func() serverrules.Server {
				return serverrules.Varnish(serverrules.VarnishConfig{Limit: 100, Per: window5, Block: window10})
			}},

		// Headers that describe the limit incompletely or wrongly.
		{server: "Varnish vsthrottle, remaining without reset, 100 per 5 s", ideal: bucket(20, 100),
			new: func() serverrules.Server {
				return serverrules.Varnish(serverrules.VarnishConfig{Limit: 100, Per: window5, StateRemaining: true})
			}},
		{server: "flask-limiter, moving-window, 100 per 5 s", ideal: inWindows5,
			new: func() serverrules.Server { return serverrules.FlaskMoving(100, window5) }},
		{server: "httprate, 100 per 5 s", ideal: slidingAligned(span{100, window5}),
			new: func() serverrules.Server { return httpRate(100, window5) }},
		{server: "ulule/limiter, 100 per 5 s", ideal: inWindows5,
			new: func() serverrules.Server { return ulule(100, window5) }},
		{server: "go-limiter, 100 per 5 s", ideal: aligned(span{100, window5}),
			new: func() serverrules.Server { return serverrules.GoLimiter(100, window5) }},
		{server: "envoyproxy/ratelimit, 20 per 1 s and 100 per 1 min",
			ideal: aligned(span{20, time.Second}, span{100, time.Minute}),
			new: func() serverrules.Server {
				return serverrules.Envoy(serverrules.EnvoyLimit{Limit: 20, Unit: time.Second}, serverrules.EnvoyLimit{Limit: 100, Unit: time.Minute})
			}},
		{server: "nginx, 429, 20/s burst 20, in front of express draft-6, 1,000 per 1 min", ideal: bucket(20, 21),
			new: func() serverrules.Server {
				return nginx(20, 0, true, bare(429))().Before(serverrules.Express(1000, time.Minute, serverrules.Draft6))
			}},

		// Quotas and paths.
		{server: "Discord, 40 routes, 5 per 5 s each", path: routes(40),
			ideal: perPath(40, fromFirst(span{5, window5})),
			new:   func() serverrules.Server { return serverrules.Discord(5, window5) }},
		{server: "Discord, 200 routes, 1 per 5 s each", path: routes(200),
			ideal: perPath(200, fromFirst(span{1, window5})),
			new:   func() serverrules.Server { return serverrules.Discord(1, window5) }},
		{server: "throttled, 2/s burst 20, 300 pages /users/NAME", path: userPage,
			ideal: bucket(2, 20), new: func() serverrules.Server { return gcra(2, 20) }},
	}
}

// matching returns the rows whose server matches the expression.
func matching(all []row, expression *regexp.Regexp) (some []row) {
	for _, r := range all {
		if expression.MatchString(r.server) {
			some = append(some, r)
		}
	}
	return some
}

// routes returns a function for n paths in turn.
func routes(n int) func(int) string {
	return func(i int) string { return simulation.Route(i % n) }
}

// userPage returns a path whose last segment is a name without digits, different for each i.
func userPage(i int) string {
	return fmt.Sprintf("/users/%c%c%cson", 'a'+rune(i%26), 'e'+rune(i/26%5), 'a'+rune(i/130))
}
