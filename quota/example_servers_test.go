package quota_test

import (
	"context"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/heed-go/heed/internal/serverrules"
	"github.com/heed-go/heed/throttle"
)

const window5 = 5 * time.Second

var itemsURL = &url.URL{Scheme: "https", Host: "api.example.com", Path: "/items"}

var fixedWindow = scenario{
	name:   "fixed window of 100 per 5 s, headers in every response",
	server: func() serverrules.Server { return serverrules.Express(100, window5, serverrules.Draft7) },
	calls:  300, burst: 60, rate: 30,
	ideal: 10 * time.Second, // at 0, 5 and 10 s
}

// The server states what is left and when the window ends. heed sends what is left, waits for
// the reset, and sends again. The rejected requests are tests. All plots are explained in
// docs/server-limits.md. They show what happens to 60 calls that are made at the start and to
// 30 calls per second after that, each of which is retried until it succeeds.
func Example_fixedWindow() {
	fixedWindow.plot()
	// Output:
	// fixed window of 100 per 5 s, headers in every response
	// arrivals    67 │█
	//                │█
	//                │█▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▁
	// accepted    92 │▂                   ▂                    █
	//                │█                   █▁                   █
	//                │█▂▃▂▃▁              ██                  ▂█  ▁
	// rejected       │     1   1        1        1           1
	// waits for      │     qqqqqqqqqqqqqqqsqqqqqqqqqqqqqqqqqqqss
	//                └┬───────────────────┬───────────────────┬────
	//                 0 s                 5 s                 10 s
	// 1 column = 250 ms, s = slow start, q = quota
	//     0 s  quota api.example.com: stated limit of 100 per 5 s
	// 300 calls: 305 requests sent, 5 rejected, 0 calls failed, 11.1 s (ideal 10 s)
}

var bucketWithHeaders = scenario{
	name:   "token bucket of 20/s, burst 50, headers in every response",
	server: func() serverrules.Server { return tokenBucket(20, 50) },
	calls:  300, burst: 60, rate: 30,
	ideal: 12500 * time.Millisecond, // 50, and 250 at 20/s
}

// The server states what is left and when the bucket is full. heed uses up the burst, learns the
// rate from what is restored between responses, and then sends at that rate.
func Example_tokenBucket() {
	bucketWithHeaders.plot()
	// Output:
	// token bucket of 20/s, burst 50, headers in every response
	// arrivals    67 │█
	//                │█
	//                │█▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▁
	// accepted    51 │█
	//                │█   ▃
	//                │█   █▃▂▃▃▂▃▃▃▂▃▃▃▃▃▂▃▃▃▃▃▃▃▂▃▃▃▃▃▃▃▃▃▃▃▂▃▃▃▃▃▃▂▃▃▃▁
	// rejected       │+         1             1          1
	// waits for      │qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq
	//                └┬───────────────────┬───────────────────┬──────────
	//                 0 s                 5 s                 10 s
	// 1 column = 250 ms, + = 10 or more, q = quota
	//     0 s  quota api.example.com: stated limit of 50
	// 300 calls: 314 requests sent, 14 rejected, 0 calls failed, 12.5 s (ideal 12.5 s)
}

var slidingLog = scenario{
	name:   "sliding log of 100 per 5 s, headers in every response, the reset moves",
	server: func() serverrules.Server { return serverrules.FlaskMoving(100, window5) },
	calls:  300, burst: 60, rate: 30,
	ideal: 11333 * time.Millisecond, // 60 at 0, 5 and 10 s, each followed by 40 at 30/s
}

// Units come back as they were used, so that the stated reset is when the first of them comes
// back, and moves. heed waits for as many as the requests that it sent that long ago.
func Example_slidingLog() {
	slidingLog.plot()
	// Output:
	// sliding log of 100 per 5 s, headers in every response, the reset moves
	// arrivals    67 │█
	//                │█
	//                │█▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▁
	// accepted    91 │▂                                           █
	//                │█                    ▅                      █
	//                │█▂▃▂▃▁              ▆█  █▁  ▁               █   ▃
	// rejected       │     1   1        1               1         1
	// waits for      │     qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqsqqqq
	//                └┬───────────────────┬───────────────────┬────────
	//                 0 s                 5 s                 10 s
	// 1 column = 250 ms, s = slow start, q = quota
	//     0 s  quota api.example.com: stated limit of 100
	// 300 calls: 305 requests sent, 5 rejected, 0 calls failed, 12.1 s (ideal 11.3 s)
}

var slidingCounter = scenario{
	name:   "sliding counter of 100 per 5 s, headers in every response, Retry-After is always 5",
	server: func() serverrules.Server { return countSliding(100, window5) },
	calls:  300, burst: 60, rate: 30,
	ideal: 15 * time.Second, // 100, and 200 at 20/s from 5 s on
}

// The previous window counts in proportion to what is left of it, so that nothing is left when
// the stated reset is reached, and units come back evenly from then on. heed waits for the first
// of them, and learns this from the response.
func Example_slidingCounter() {
	slidingCounter.plot()
	// Output:
	// sliding counter of 100 per 5 s, headers in every response, Retry-After is always 5
	// arrivals    67 │█
	//                │█
	//                │█▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▁
	// accepted    67 │█
	//                │█
	//                │█▃▃▃▃▂              ▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂
	// rejected       │     1   1       1
	// waits for      │     qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq
	//                └┬───────────────────┬───────────────────┬───────────────────┬
	//                 0 s                 5 s                 10 s                15 s
	// 1 column = 250 ms, q = quota
	//     0 s  quota api.example.com: stated limit of 100
	// 300 calls: 303 requests sent, 3 rejected, 0 calls failed, 15.1 s (ideal 15 s)
}

var withoutReset = scenario{
	name: "token bucket of 100 per 5 s, limit and remaining in every response, no reset",
	server: func() serverrules.Server {
		return serverrules.Varnish(serverrules.VarnishConfig{Limit: 100, Per: window5, StateRemaining: true})
	},
	calls: 300, burst: 60, rate: 30,
	ideal: 10 * time.Second, // 100, and 200 at 20/s
}

// The server states what is left, but not when units come back. That delays requests only after a
// rejection has confirmed it.
func Example_withoutReset() {
	withoutReset.plot()
	// Output:
	// token bucket of 100 per 5 s, limit and remaining in every response, no reset
	// arrivals    67 │█
	//                │█
	//                │█▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▁
	// accepted    67 │█
	//                │█
	//                │█▃▃▃▃▂   ▁█  ▆ ▄ ▃▁▂▃▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▂▁
	// rejected       │     2
	// waits for      │     qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq
	//                └┬───────────────────┬───────────────────┬─────────────────
	//                 0 s                 5 s                 10 s
	// 1 column = 250 ms, q = quota
	//   1.4 s  quota api.example.com: stated limit of 100
	// 300 calls: 302 requests sent, 2 rejected, 0 calls failed, 14.4 s (ideal 10 s)
}

var concurrency = scenario{
	name:   "10 requests at a time, 100 to 300 ms each, Concurrency-Remaining in every response",
	server: func() serverrules.Server { return slots(10, 100*time.Millisecond, 300*time.Millisecond) },
	calls:  500, burst: 60, rate: 60,
	ideal: 10 * time.Second, // 50/s
}

// The limit is the number of requests in flight. heed fills all places, and sends the next request
// when a response arrives.
func Example_concurrency() {
	concurrency.plot()
	// Output:
	// 10 requests at a time, 100 to 300 ms each, Concurrency-Remaining in every response
	// arrivals    74 │█
	//                │█
	//                │█▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▂
	// accepted    15 │▇▅▇ ▅▄▇▂▅ ▂▄▅ ▅▂▅█ ▄ ▄▄ ▂ ▇ ▅▂ ▄ ▅▂▂▂▅▂▄▂▂▂
	//                │███▅██████████████▇████▇███▇██▅████████████
	//                │███████████████████████████████████████████▅
	// rejected       │+
	// waits for      │qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq
	//                └┬───────────────────┬───────────────────┬────
	//                 0 s                 5 s                 10 s
	// 1 column = 250 ms, + = 10 or more, q = quota
	//     0 s  quota api.example.com: stated limit concurrency of 10
	// 500 calls: 551 requests sent, 51 rejected, 0 calls failed, 11 s (ideal 10 s)
}

var retryAfterOnly = scenario{
	name: "fixed window of 100 per 5 s, Retry-After in rejections only",
	server: func() serverrules.Server {
		return serverrules.RackAttack(100, window5, serverrules.RackRetryAfter)
	},
	calls: 600, burst: 60, rate: 30, column: 500 * time.Millisecond,
	ideal:  25 * time.Second, // 100 at 0, 5 ... 25 s
	varies: true,
}

// The rejections state when to come back, but neither the limit nor what is left. When others are
// rejected, too, requests wait until then, and single ones test that. From the third wait on the
// first rejection begins it.
func Example_retryAfterOnly() {
	retryAfterOnly.plot()
	// Output:
	// fixed window of 100 per 5 s, Retry-After in rejections only
	// arrivals    74 │█
	//                │█
	//                │█▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▁
	// accepted   100 │▂          █          █       █                     ▇
	//                │█          █          █       █          ▂▇         █
	//                │█▄▃        █         ▁█       █          ██        ▂█
	// rejected       │  42 1  1  2       1  1       11          1      1
	// waits for      │   aaaaaaaasaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaas
	//                └┬─────────┬─────────┬─────────┬─────────┬─────────┬──
	//                 0 s       5 s       10 s      15 s      20 s      25 s
	// 1 column = 500 ms, s = slow start, a = retry-after
	// 600 calls: 616 requests sent, 16 rejected, 0 calls failed, 26.1 s (ideal 25 s)
}

var headersInRejections = scenario{
	name: "fixed window of 100 per 5 s, headers in rejections only",
	server: func() serverrules.Server {
		return serverrules.RackAttack(100, window5, serverrules.RackReadme)
	},
	calls: 600, burst: 60, rate: 30, column: 500 * time.Millisecond,
	ideal: 25 * time.Second, // 100 at 0, 5 ... 25 s
}

// The first rejection describes the limit. heed keeps it and counts its own requests from then on,
// so that later windows need no rejections.
func Example_headersInRejections() {
	headersInRejections.plot()
	// Output:
	// fixed window of 100 per 5 s, headers in rejections only
	// arrivals    74 │█
	//                │█
	//                │█▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▁
	// accepted   100 │▂         █         █         █         █         █
	//                │█         █         █         █         █         █
	//                │█▄▃       █         █         █         █         █
	// rejected       │  2 1   1 1  1    1 1    1 1  1      1  2
	// waits for      │  qqqqqqqqqqqqqqqqqqsqqqqqqqqqqqqqqqqqqqsqqqqqqqqqs
	//                └┬─────────┬─────────┬─────────┬─────────┬─────────┬
	//                 0 s       5 s       10 s      15 s      20 s      25 s
	// 1 column = 500 ms, s = slow start, q = quota
	//   1.4 s  quota api.example.com: stated limit of 100
	// 600 calls: 614 requests sent, 14 rejected, 0 calls failed, 25.3 s (ideal 25 s)
}

var bareWindow = scenario{
	name:   "fixed window of 100 per 5 s, bare 429",
	server: func() serverrules.Server { return serverrules.ModQoS(100, window5) },
	calls:  400, burst: 60, rate: 30, column: 500 * time.Millisecond,
	ideal: 15 * time.Second, // 100 at 0, 5, 10 and 15 s
}

// Rejections state nothing. When others are rejected, too, requests wait until a test is accepted.
// After two such waits the number of requests that were accepted and the time until then are a
// window, which is dropped when it proves wrong.
func Example_bareWindow() {
	bareWindow.plot()
	// Output:
	// fixed window of 100 per 5 s, bare 429
	// arrivals    74 │█
	//                │█
	//                │█▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▄
	// accepted   100 │▂                      █         █
	//                │█            ▁█        █         █
	//                │█▄▃          ██        █         █
	// rejected       │  42 1  1         1
	// waits for      │   rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr
	//                └┬─────────┬─────────┬─────────┬───
	//                 0 s       5 s       10 s      15 s
	// 1 column = 500 ms, r = learned rate
	//   6.6 s  quota api.example.com (learned rate): learned limit of 100 per 5 s
	// 400 calls: 409 requests sent, 9 rejected, 0 calls failed, 16.9 s (ideal 15 s)
}

var bareBucket = scenario{
	name:   "token bucket of 20/s, burst 20 (nginx), bare 429",
	server: func() serverrules.Server { return nginx(429) },
	calls:  600, burst: 60, rate: 30, column: 500 * time.Millisecond,
	ideal: 28950 * time.Millisecond, // 21, and 579 at 20/s
}

// Rejections state nothing, and the server accepts requests again after a short time. heed estimates
// the rate, and lowers it after rejections.
func Example_bareBucket() {
	bareBucket.plot()
	// Output:
	// token bucket of 20/s, burst 20 (nginx), bare 429
	// arrivals    74 │█
	//                │█
	//                │█▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▁
	// accepted    30 │█
	//                │█                    ▃█                     ▄▄
	//                │██▆███████████████████████████████████████████████████████▄
	// rejected       │++1                    +4                    59
	// waits for      │srrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr
	//                └┬─────────┬─────────┬─────────┬─────────┬─────────┬────────
	//                 0 s       5 s       10 s      15 s      20 s      25 s
	// 1 column = 500 ms, + = 10 or more, s = slow start, r = learned rate
	//   0.6 s  quota api.example.com (learned rate): learned limit of 20.8 per second
	// 600 calls: 737 requests sent, 137 rejected, 0 calls failed, 29.2 s (ideal 28.9 s)
}

var bare503 = scenario{
	name:   "token bucket of 20/s, burst 20 (nginx), bare 503",
	server: func() serverrules.Server { return nginx(503) },
	calls:  600, burst: 60, rate: 30, column: 500 * time.Millisecond,
	ideal: 28950 * time.Millisecond, // 21, and 579 at 20/s
}

// A 503 may be a failure of the server. While many of the responses are failures, fewer requests are
// in flight, and if that does not help a lower rate is tried.
func Example_bare503() {
	bare503.plot()
	// Output:
	// token bucket of 20/s, burst 20 (nginx), bare 503
	// arrivals    74 │█
	//                │█
	//                │█▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▁
	// accepted    30 │█
	//                │█                    ▂▇▅                 ▂▁
	//                │██████████████████████████████████████████████████████████▁
	// rejected       │++                     1  1               1
	// waits for      │orrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr
	//                └┬─────────┬─────────┬─────────┬─────────┬─────────┬────────
	//                 0 s       5 s       10 s      15 s      20 s      25 s
	// 1 column = 500 ms, + = 10 or more, r = learned rate, o = overload
	//   0.7 s  quota api.example.com (learned rate): learned limit of 18.4 per second
	// 600 calls: 710 requests sent, 112 rejected, 2 calls failed, 29.1 s (ideal 28.9 s)
}

var ban = scenario{
	name: "token bucket of 100 per 5 s that bans for 10 s (Varnish), bare 429",
	server: func() serverrules.Server {
		return serverrules.Varnish(serverrules.VarnishConfig{Limit: 100, Per: window5, Block: 10 * time.Second})
	},
	calls: 300, burst: 60, rate: 30, column: 500 * time.Millisecond,
	ideal:  10 * time.Second, // 100, and 200 at 20/s
	varies: true,
}

// Each rejection that exceeds the limit is followed by a ban of 10 s. The pauses between tests grow,
// until one is accepted.
func Example_ban() {
	ban.plot()
	// Output:
	// token bucket of 100 per 5 s that bans for 10 s (Varnish), bare 429
	// arrivals    74 │█
	//                │█
	//                │█▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▁
	// accepted    74 │█
	//                │█
	//                │█▅▄                             ▁▅███▅         ▁▁▁▂▂▃▂▄▄▅▅█▁
	// rejected       │  42 1  1    1      1
	// waits for      │   rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr
	//                └┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────
	//                 0 s       5 s       10 s      15 s      20 s      25 s
	// 1 column = 500 ms, r = learned rate
	//  16.5 s  quota api.example.com (learned rate): learned limit of 100 per 15 s
	//    24 s  quota api.example.com (learned rate): dropped learned limit
	//    24 s  quota api.example.com (learned rate): learned limit of 6.01 per second
	// 300 calls: 310 requests sent, 10 rejected, 0 calls failed, 29.5 s (ideal 10 s)
}

var healthy = scenario{
	name:   "no limit, 1 % of the responses are a 503",
	server: func() serverrules.Server { return every(100, http.StatusServiceUnavailable) },
	calls:  600, burst: 60, rate: 30,
	ideal: 18 * time.Second, // the last call
}

// A server without a limit fails now and then. Only the failed request is delayed and retried; no
// other request waits.
func Example_healthy() {
	healthy.plot()
	// Output:
	// no limit, 1 % of the responses are a 503
	// arrivals    67 │█
	//                │█
	//                │█▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▁
	// accepted    67 │█
	//                │█
	//                │█▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▄▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▃▁
	// rejected       │     1            1            1            1             1            1
	// waits for      │
	//                └┬───────────────────┬───────────────────┬───────────────────┬────────────
	//                 0 s                 5 s                 10 s                15 s
	// 1 column = 250 ms
	// 600 calls: 606 requests sent, 6 rejected, 0 calls failed, 18 s (ideal 18 s)
}

var late = scenario{
	name: "sliding counter of 50 per 2 s (HAProxy with tarpit), bare 429 after 3 s",
	server: func() serverrules.Server {
		return serverrules.HAProxy(serverrules.HAProxyConfig{Limit: 50, Per: 2 * time.Second, Rejection: serverrules.Reply{Status: 429, Delay: 3 * time.Second}})
	},
	calls: 400, burst: 60, rate: 30, column: 2 * time.Second,
	ideal: 16 * time.Second, // 50, after 2 s 350 at 25/s
}

// A server rejects requests late. heed does not take latency for a limit, so it waits when the
// rejections arrive, and then learns the rate.
func Example_lateRejections() {
	late.plot()
	// Output:
	// sliding counter of 50 per 2 s (HAProxy with tarpit), bare 429 after 3 s
	// arrivals   119 │█
	//                │█▅▅▅▅▁
	//                │██████
	// accepted    50 │█ ▅ ▇▂ ▇ ▂  █
	//                │█ █ ██ █ ██ █▄ ▄
	//                │█ █ ██ ████ ██ █
	// rejected       │+++6++8+ ++ ++
	// waits for      │ ooooooooooooooo
	//                └┬────┬────┬────┬
	//                 0 s  10 s 20 s 30 s
	// 1 column = 2 s, + = 10 or more, o = overload
	// 400 calls: 729 requests sent, 329 rejected, 0 calls failed, 31.3 s (ideal 16 s)
}

var overloaded = scenario{
	name:   "no limit, 50/s, but 10/s from 5 s to 15 s; 503 where that takes longer than 2 s",
	server: func() serverrules.Server { return overload(5*time.Second, 15*time.Second) },
	calls:  900, rate: 30, column: 500 * time.Millisecond,
	ideal: 30 * time.Second, // the last call
}

// A server becomes slow and rejects requests, because it can process fewer than before. Failures
// depend on the requests in flight, so heed sends fewer at a time until all calls are served.
func Example_overloaded() {
	overloaded.plot()
	// Output:
	// no limit, 50/s, but 10/s from 5 s to 15 s; 503 where that takes longer than 2 s
	// arrivals    15 │▇███████████████████████████████████████████████████████████
	//                │████████████████████████████████████████████████████████████
	//                │████████████████████████████████████████████████████████████▂
	// accepted    27 │                                  ████████▇████▇███▇█▂
	//                │▅▆▆▆▆▆▆▆▆▆▆▆      ▁▁             ▆████████████████████▆▆▆▆▆▆
	//                │████████████▆   ▄▇███ ▅▅▅▅▆▅▅▆▅▅▅███████████████████████████▁
	// rejected       │            +       1
	// waits for      │            oooooooooooooooooooooooooooooooooooooooooo
	//                └┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬
	//                 0 s       5 s       10 s      15 s      20 s      25 s      30 s
	// 1 column = 500 ms, + = 10 or more, o = overload
	// 900 calls: 914 requests sent, 14 rejected, 0 calls failed, 30 s (ideal 30 s)
}

var shared = scenario{
	name:    "fixed window of 100 per 5 s that two clients share, headers in every response",
	server:  func() serverrules.Server { return serverrules.Express(100, window5, serverrules.Draft7) },
	clients: 2,
	calls:   600, burst: 60, rate: 30, column: 500 * time.Millisecond,
	ideal:  25 * time.Second, // 100 at 0, 5 ... 25 s
	varies: true,
}

// Two programs share a limit and do not communicate. Each sees that more units are used than it sends requests, and sends
// fewer of them when few units are left.
func Example_shared() {
	shared.plot()
	// Output:
	// fixed window of 100 per 5 s that two clients share, headers in every response
	// arrivals    74 │█
	//                │█
	//                │█▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▁
	// accepted 1  74 │          ▃                   █
	//                │▄         █         ▆         █         ▆         ▄
	//                │█▃▂       █         █         █         █         █
	// rejected 1     │  2  1   1   1     1     1  1 2      1  1
	// waits for 1    │  qqqqqqqqsqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqs
	// accepted 2  64 │          ▁         ▆                   ▆         █
	//                │▆         █         █         ▂         █         █
	//                │█▃▃       █         █         █         █         █▁    ▁
	// rejected 2     │  1  1   1   1     14    1  1 1      1  1         1
	// waits for 2    │  qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqs
	//                └┬─────────┬─────────┬─────────┬─────────┬─────────┬──────
	//                 0 s       5 s       10 s      15 s      20 s      25 s
	// 1 column = 500 ms, s = slow start, q = quota
	//     0 s  quota api.example.com: stated limit of 100 per 5 s
	//     0 s  quota api.example.com: stated limit of 100 per 5 s
	// 600 calls: 627 requests sent, 27 rejected, 0 calls failed, 28.3 s (ideal 25 s)
}

// scenarios are the scenarios of all examples.
var scenarios = []*scenario{
	&fixedWindow, &bucketWithHeaders, &slidingLog, &slidingCounter, &withoutReset, &concurrency, &retryAfterOnly,
	&headersInRejections, &bareWindow, &bareBucket, &bare503, &ban, &healthy, &late, &overloaded, &shared,
}

// tokenBucket is a token bucket with the headers of throttled/throttled.
func tokenBucket(rate, burst int64) serverrules.Server {
	l := throttle.NewTokenBucket(throttle.PerSecond(rate).WithBurst(burst))
	return func(r serverrules.Request) serverrules.Reply {
		d, err := l.Reserve(context.Background(), throttle.Claim{Now: r.At})
		if err != nil {
			panic(err)
		}
		reply := serverrules.Reply{Header: limitHeader(d.Limit, d.Remaining)}
		reply.Header.Set("X-RateLimit-Reset", wholeSeconds(d.ResetAfter))
		if !d.OK {
			reply.Status = http.StatusTooManyRequests
			reply.Header.Set("Retry-After", wholeSeconds(d.Wait))
		}
		return reply
	}
}

// countSliding is go-chi/httprate: the requests of this window, and those of the previous
// one in proportion to the part of it that is within the last period.
func countSliding(limit int64, per time.Duration) serverrules.Server {
	var start time.Time
	var current, previous int64
	return func(r serverrules.Request) serverrules.Reply {
		if start.IsZero() {
			start = r.At
		}
		for r.At.Sub(start) >= per {
			start, current, previous = start.Add(per), 0, current
		}
		rest := float64(per-r.At.Sub(start)) / float64(per)
		count := int64(math.Round(float64(previous)*rest + float64(current)))
		reply := serverrules.Reply{}
		if count < limit {
			count++
			current++
		} else {
			reply.Status = http.StatusTooManyRequests
		}
		reply.Header = limitHeader(limit, limit-count)
		reply.Header.Set("X-RateLimit-Reset", strconv.FormatInt(start.Add(per).Unix(), 10))
		if !reply.OK() {
			reply.Header.Set("Retry-After", wholeSeconds(per))
		}
		return reply
	}
}

// slots accepts n requests at a time, each of which takes from least to most.
func slots(n int, least, most time.Duration) serverrules.Server {
	random := rand.New(rand.NewPCG(3, 4))
	var ends []time.Time // of the requests in progress
	return func(r serverrules.Request) serverrules.Reply {
		ends = slices.DeleteFunc(ends, func(end time.Time) bool { return !r.At.Before(end) })
		reply := serverrules.Reply{Header: http.Header{}}
		if len(ends) < n {
			reply.Delay = least + time.Duration(random.Int64N(int64(most-least)))
			ends = append(ends, r.At.Add(reply.Delay))
		} else {
			reply.Status = http.StatusTooManyRequests
		}
		reply.Header.Set("Concurrency-Limit", strconv.Itoa(n))
		reply.Header.Set("Concurrency-Remaining", strconv.Itoa(n-len(ends)))
		return reply
	}
}

// nginx is limit_req with rate=20r/s, burst=20 and nodelay.
func nginx(status int) serverrules.Server {
	return serverrules.Nginx(throttle.NginxConfig{Rate: 20, Per: time.Second, Burst: 20, NoDelay: true}, serverrules.Reject(status))
}

// every responds to each nth request with a status.
func every(n, status int) serverrules.Server {
	count := 0
	return func(serverrules.Request) serverrules.Reply {
		if count++; count%n == 0 {
			return serverrules.Reject(status)
		}
		return serverrules.Reply{}
	}
}

// overload processes 50 requests per second, one after another, and 10 per second between
// the two times after the first request. It rejects requests that would wait longer than 2 s.
func overload(from, to time.Duration) serverrules.Server {
	var start, free time.Time
	return func(r serverrules.Request) serverrules.Reply {
		if start.IsZero() {
			start, free = r.At, r.At
		}
		takes := time.Second / 50
		if at := r.At.Sub(start); at >= from && at < to {
			takes = time.Second / 10
		}
		if free.Before(r.At) {
			free = r.At
		}
		if free.Sub(r.At) > 2*time.Second {
			return serverrules.Reject(http.StatusServiceUnavailable)
		}
		free = free.Add(takes)
		return serverrules.Reply{Delay: free.Sub(r.At)}
	}
}

func limitHeader(limit, remaining int64) http.Header {
	h := http.Header{}
	h.Set("X-RateLimit-Limit", strconv.FormatInt(limit, 10))
	h.Set("X-RateLimit-Remaining", strconv.FormatInt(remaining, 10))
	return h
}

// wholeSeconds returns d in seconds, rounded up.
func wholeSeconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }
