package serverrules_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/serverrules"
	"github.com/heed-go/heed/throttle"
)

// start is a quarter of a second after a multiple of a minute.
var start = time.Date(2026, time.January, 1, 0, 0, 0, 250_000_000, time.UTC)

// A step is a number of requests at one time, of which the last gets the reply.
type step struct {
	at     time.Duration
	n      int
	status int
	header http.Header
	delay  time.Duration
	drop   bool
	path   string
}

func header(nameValues ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(nameValues); i += 2 {
		h.Add(nameValues[i], nameValues[i+1])
	}
	return h
}

func check(t *testing.T, name string, s serverrules.Server, steps []step) {
	t.Helper()
	for i, want := range steps {
		var got serverrules.Reply
		for range want.n {
			got = s(serverrules.Request{At: start.Add(want.at), Path: want.path})
		}
		if got.Status == 0 {
			got.Status = 200
		}
		if got.Header == nil {
			got.Header = http.Header{}
		}
		if want.header == nil {
			want.header = http.Header{}
		}
		require.Equal(t, serverrules.Reply{Status: want.status, Header: want.header, Delay: want.delay, Drop: want.drop}, got, "%s, step %d", name, i)
	}
}

func TestServers_replyAsTheRealOnes(t *testing.T) {
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		server serverrules.Server
		steps  []step
	}{
		// The window begins with the first request and ends at 5.25 s, which legacy headers
		// round up.
		"express, legacy": {serverrules.Express(2, 5*time.Second, serverrules.Legacy), []step{
			{n: 1, status: 200, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1767225606", "Date", "Thu, 01 Jan 2026 00:00:00 GMT")},
			{at: 900 * ms, n: 2, status: 429, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225606", "Date", "Thu, 01 Jan 2026 00:00:01 GMT", "Retry-After", "5")},
			{at: 5 * time.Second, n: 1, status: 200, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1767225611", "Date", "Thu, 01 Jan 2026 00:00:05 GMT")},
		}},
		"express, draft-6": {serverrules.Express(2, 5*time.Second, serverrules.Draft6), []step{
			{n: 1, status: 200, header: header("RateLimit-Policy", "2;w=5", "RateLimit-Limit", "2", "RateLimit-Remaining", "1", "RateLimit-Reset", "5")},
			{at: 4500 * ms, n: 2, status: 429, header: header("RateLimit-Policy", "2;w=5", "RateLimit-Limit", "2", "RateLimit-Remaining", "0", "RateLimit-Reset", "1", "Retry-After", "1")},
		}},
		"express, draft-7": {serverrules.Express(2, 5*time.Second, serverrules.Draft7), []step{
			{n: 1, status: 200, header: header("RateLimit-Policy", "2;w=5", "RateLimit", "limit=2, remaining=1, reset=5")},
		}},
		"express, two draft-8": {serverrules.ExpressTwice(1, time.Second, 2, 10*time.Second), []step{
			{n: 1, status: 200, header: header(
				"RateLimit-Policy", `"burst"; q=1; w=1; pk=:MTJjYTE3YjQ5YWYy:`, "RateLimit-Policy", `"sustained"; q=2; w=10; pk=:MTJjYTE3YjQ5YWYy:`,
				"RateLimit", `"burst"; r=0; t=1`, "RateLimit", `"sustained"; r=1; t=10`)},
			{n: 1, status: 429, header: header("RateLimit-Policy", `"burst"; q=1; w=1; pk=:MTJjYTE3YjQ5YWYy:`, "RateLimit", `"burst"; r=0; t=1`, "Retry-After", "1")},
			{at: time.Second, n: 1, status: 200, header: header(
				"RateLimit-Policy", `"burst"; q=1; w=1; pk=:MTJjYTE3YjQ5YWYy:`, "RateLimit-Policy", `"sustained"; q=2; w=10; pk=:MTJjYTE3YjQ5YWYy:`,
				"RateLimit", `"burst"; r=0; t=1`, "RateLimit", `"sustained"; r=0; t=9`)},
		}},
		// Windows begin at 0.5 s and 5.5 s. What was used in the window before is weighted by the part of the
		// present window that is left, and rounded down.
		"sliding counter": {serverrules.SlidingCounter(serverrules.SlidingCounterConfig{Limit: 3, Per: 5 * time.Second, Offset: 500 * ms,
			Headers: serverrules.XRateLimit(ms), RetryAfter: serverrules.UntilUnit}), []step{
			{n: 1, status: 200, header: header("X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "2", "X-RateLimit-Reset", "1767225600500")},
			{at: 250 * ms, n: 2, status: 200, header: header("X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225605500")},
			{at: 251 * ms, n: 1, status: 200, header: header("X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225605500")},
			{at: 4250 * ms, n: 1, status: 429, header: header("X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225605500", "Retry-After", "1")},
			{at: 5250 * ms, n: 1, status: 429, header: header("X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225610500", "Retry-After", "1")},
			{at: 5251 * ms, n: 1, status: 200, header: header("X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225610500")},
			{at: 6250 * ms, n: 1, status: 429, header: header("X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225610500", "Retry-After", "1")},
			{at: 20 * time.Second, n: 3, status: 200, header: header("X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225620500")},
			{at: 20 * time.Second, n: 1, status: 429, header: header("X-RateLimit-Limit", "3", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225620500", "Retry-After", "1")},
		}},
		"sliding counter, others use it": {serverrules.SlidingCounter(serverrules.SlidingCounterConfig{Limit: 10, Per: 5 * time.Second,
			Headers: serverrules.XRateLimit(time.Second), RetryAfter: serverrules.UntilWindow, Others: 2}), []step{
			{n: 1, status: 200, header: header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", "1767225605")},
			{at: time.Second, n: 1, status: 200, header: header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "6", "X-RateLimit-Reset", "1767225605")},
			{at: 4250 * ms, n: 1, status: 429, header: header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225605", "Retry-After", "1")},
		}},
		"fastify": {serverrules.Fastify(2, 5*time.Second), []step{
			{n: 2, status: 200, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "5")},
			{at: 100 * ms, n: 1, status: 429, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "5", "Retry-After", "5")},
		}},
		"koa": {serverrules.Koa(2, 5*time.Second), []step{
			{n: 2, status: 200, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225605.25")},
			{at: 100 * ms, n: 1, status: 429, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225605.25", "Retry-After", "4")},
		}},
		"Rack::Attack, README": {serverrules.RackAttack(2, 5*time.Second, serverrules.RackReadme), []step{
			{n: 2, status: 200},
			{at: 4700 * ms, n: 1, status: 429, header: header("RateLimit-Limit", "2", "RateLimit-Remaining", "0", "RateLimit-Reset", "1767225605")},
			{at: 4750 * ms, n: 1, status: 200},
		}},
		"Rack::Attack, Retry-After": {serverrules.RackAttack(2, 5*time.Second, serverrules.RackRetryAfter), []step{
			{at: time.Second, n: 3, status: 429, header: header("Retry-After", "4")},
		}},
		"Rack::Attack": {serverrules.RackAttack(2, 5*time.Second, serverrules.RackBare), []step{
			{n: 3, status: 429},
		}},
		// The third request of a second bans, the fourth is rejected.
		"Allow2Ban": {serverrules.Allow2Ban(3, time.Second, 5*time.Second), []step{
			{n: 3, status: 200},
			{n: 1, status: 403},
			{at: 4999 * ms, n: 1, status: 403},
			{at: 5 * time.Second, n: 3, status: 200},
		}},
		// The first second admits one more, and the first rejection does not block.
		"mod_evasive": {serverrules.ModEvasive(2, 10*time.Second, 403), []step{
			{n: 3, status: 200},
			{n: 1, status: 403},
			{at: 750 * ms, n: 2, status: 200},
			{at: 750 * ms, n: 1, status: 403},
			{at: 10 * time.Second, n: 1, status: 403},
			{at: 19 * time.Second, n: 1, status: 403},
			{at: 29 * time.Second, n: 2, status: 200},
		}},
		"mod_qos": {serverrules.ModQoS(2, 5*time.Second), []step{
			{n: 3, status: 429},
			{at: 5 * time.Second, n: 2, status: 200},
		}},
		// Requests that come faster than tokens are restored lose the fraction.
		"Varnish": {serverrules.Varnish(serverrules.VarnishConfig{Limit: 10, Per: 10 * time.Second, StateRemaining: true}), []step{
			{n: 9, status: 200, header: header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "1")},
			{at: 900 * ms, n: 1, status: 200, header: header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0")},
			{at: 1800 * ms, n: 1, status: 429, header: header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0")},
			{at: 1900 * ms, n: 1, status: 200, header: header("X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0")},
		}},
		// Requests during a block use up tokens, and do not extend it.
		"Varnish, block": {serverrules.Varnish(serverrules.VarnishConfig{Limit: 10, Per: 10 * time.Second, Block: 5 * time.Second}), []step{
			{n: 10, status: 200},
			{n: 1, status: 429},
			{at: 4 * time.Second, n: 4, status: 429},
			{at: 5 * time.Second, n: 1, status: 200},
			{at: 5 * time.Second, n: 1, status: 429},
		}},
		// The reset is the expiry of the oldest request, rounded down, plus a second. It moves
		// when that expires.
		"flask-limiter, moving": {serverrules.FlaskMoving(2, 5*time.Second), []step{
			{n: 1, status: 200, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "1767225606", "Retry-After", "5")},
			{at: 2 * time.Second, n: 1, status: 200, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225606", "Retry-After", "3")},
			{at: 5 * time.Second, n: 1, status: 429, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225606", "Retry-After", "0")},
			{at: 5001 * ms, n: 1, status: 200, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225608", "Retry-After", "2")},
		}},
		// The headers are those of the limit with the fewest requests remaining.
		"envoyproxy/ratelimit": {serverrules.Envoy(serverrules.EnvoyLimit{Limit: 2, Unit: time.Second}, serverrules.EnvoyLimit{Limit: 3, Unit: time.Minute}), []step{
			{n: 1, status: 200, header: header("RateLimit-Limit", "2", "RateLimit-Remaining", "1", "RateLimit-Reset", "1")},
			{at: time.Second, n: 1, status: 200, header: header("RateLimit-Limit", "2", "RateLimit-Remaining", "1", "RateLimit-Reset", "1")},
			{at: 2 * time.Second, n: 1, status: 200, header: header("RateLimit-Limit", "3", "RateLimit-Remaining", "0", "RateLimit-Reset", "58")},
			{at: 3 * time.Second, n: 1, status: 429, header: header("RateLimit-Limit", "3", "RateLimit-Remaining", "0", "RateLimit-Reset", "57")},
		}},
		"Discord": {serverrules.Discord(1, 5*time.Second), []step{
			{path: "/a", n: 1, status: 200, header: header("X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225605.250", "X-RateLimit-Reset-After", "5.000", "X-RateLimit-Bucket", "07d66707b49cd92d")},
			{path: "/a", at: 600 * ms, n: 1, status: 429, header: header("X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225605.250", "X-RateLimit-Reset-After", "4.400", "X-RateLimit-Bucket", "07d66707b49cd92d", "Retry-After", "5", "X-RateLimit-Scope", "user")},
			{path: "/b", at: 600 * ms, n: 1, status: 200, header: header("X-RateLimit-Limit", "1", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1767225605.850", "X-RateLimit-Reset-After", "5.000", "X-RateLimit-Bucket", "07d66407b49cd414")},
		}},
		"nginx": {serverrules.Nginx(throttle.NginxConfig{Rate: 20, Per: time.Second, Burst: 2, NoDelay: true}, serverrules.Reject(503)), []step{
			{n: 3, status: 200},
			{n: 1, status: 503},
			{at: 50 * ms, n: 1, status: 200},
			{at: 50 * ms, n: 1, status: 503},
		}},
		"nginx, delay": {serverrules.Nginx(throttle.NginxConfig{Rate: 20, Per: time.Second, Burst: 2, Delay: 1}, serverrules.RejectFor(429, "1")), []step{
			{n: 2, status: 200},
			{n: 1, status: 200, delay: 50 * ms},
			{n: 1, status: 429, header: header("Retry-After", "1")},
		}},
		"nginx, 444": {serverrules.Nginx(throttle.NginxConfig{Rate: 20, Per: time.Second}, serverrules.Reject(444)), []step{
			{n: 1, status: 200},
			{n: 1, status: 200, drop: true},
		}},
		// Half of the previous period counts in the middle of the next one. Denied requests
		// count too.
		"HAProxy": {serverrules.HAProxy(serverrules.HAProxyConfig{Limit: 4, Per: 2 * time.Second, Rejection: serverrules.Reject(429)}), []step{
			{n: 4, status: 200},
			{at: time.Second, n: 2, status: 429},
			{at: 3 * time.Second, n: 1, status: 200},
			{at: 3 * time.Second, n: 1, status: 429},
			{at: 6 * time.Second, n: 4, status: 200},
		}},
		"HAProxy, denied requests do not count": {serverrules.HAProxy(serverrules.HAProxyConfig{Limit: 4, Per: 2 * time.Second, Rejection: serverrules.Reject(429), OnlyAccepted: true}), []step{
			{n: 4, status: 200},
			{at: time.Second, n: 2, status: 429},
			{at: 3 * time.Second, n: 2, status: 200},
			{at: 3 * time.Second, n: 1, status: 429},
		}},
		"HAProxy, remaining": {serverrules.HAProxy(serverrules.HAProxyConfig{Limit: 2, Per: 2 * time.Second, Rejection: serverrules.Reject(429), StateRemaining: true}), []step{
			{n: 1, status: 200, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "1")},
			{n: 2, status: 429, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0")},
		}},
		"go-limiter": {serverrules.GoLimiter(2, 5*time.Second), []step{
			{n: 2, status: 200, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "Thu, 01 Jan 2026 00:00:05 UTC")},
			{at: 12 * time.Second, n: 3, status: 429, header: header("X-RateLimit-Limit", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "Thu, 01 Jan 2026 00:00:15 UTC", "Retry-After", "Thu, 01 Jan 2026 00:00:15 UTC")},
		}},
		"nginx in front of express": {serverrules.Nginx(throttle.NginxConfig{Rate: 20, Per: time.Second}, serverrules.Reject(429)).Before(serverrules.Express(9, time.Minute, serverrules.Draft7)), []step{
			{n: 1, status: 200, header: header("RateLimit-Policy", "9;w=60", "RateLimit", "limit=9, remaining=8, reset=60")},
			{n: 1, status: 429},
			{at: 50 * ms, n: 1, status: 200, header: header("RateLimit-Policy", "9;w=60", "RateLimit", "limit=9, remaining=7, reset=60")},
		}},
	} {
		check(t, name, tt.server, tt.steps)
	}
}

func TestReply_isOK(t *testing.T) {
	require.True(t, serverrules.Reply{}.OK())
	require.True(t, serverrules.Reply{Status: 200}.OK())
	for _, r := range []serverrules.Reply{{Status: 403}, {Drop: true}, {Hang: true}} {
		require.False(t, r.OK())
	}
}
