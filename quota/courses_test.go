package quota_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/serverrules"
	"github.com/heed-go/heed/throttle"
)

// A course is what a job costs on one server, to the millisecond. testdata/courses.txt records the
// courses of all servers below, so that each change of a rule of the tracker is noticed by what it
// changes: with -update the table is written again, and its diff shows whether the change is an
// improvement. Time is simulated, so a course is the same each time.
var courses = []*scenario{
	// Buckets that reject without a statement. The rate is learned, and tested now and then.
	{name: "bucket of 20/s, burst 20, bare 429", server: func() serverrules.Server { return nginx(429) }},
	{name: "bucket of 20/s, burst 20, bare 503", server: func() serverrules.Server { return nginx(503) }},
	{name: "bucket of 20/s, burst 20, bare 403", server: func() serverrules.Server { return nginx(403) }},
	{name: "bucket of 20/s, burst 20, connections closed", server: bucketServer(20, 20, serverrules.Reject(444))},
	{name: "bucket of 20/s, no burst, bare 429", server: bucketServer(20, 0, serverrules.Reject(429))},
	{name: "bucket of 20/s, no burst, bare 503", server: bucketServer(20, 0, serverrules.Reject(503))},
	{name: "bucket of 2/s, burst 5, bare 429", server: bucketServer(2, 5, serverrules.Reject(429)), calls: 120},
	{name: "bucket of 2/s, burst 5, bare 503", server: bucketServer(2, 5, serverrules.Reject(503)), calls: 120},
	{name: "bucket of 200/s, burst 20, bare 429", server: bucketServer(200, 20, serverrules.Reject(429)), calls: 2000, burst: 500, rate: 300},
	{name: "bucket of 200/s, burst 20, bare 503", server: bucketServer(200, 20, serverrules.Reject(503)), calls: 2000, burst: 500, rate: 300},
	{name: "bucket of 20/s, burst 200, bare 429", server: bucketServer(20, 200, serverrules.Reject(429)), calls: 800, burst: 300},
	{name: "bucket of 20/s, burst 20, bare 429, twice", server: func() serverrules.Server { return nginx(429) }, calls: 600, pause: 40 * time.Second},
	{name: "bucket of 20/s, burst 20, bare 503, twice", server: func() serverrules.Server { return nginx(503) }, calls: 600, pause: 40 * time.Second},

	// The same with Retry-After, which says when to come back, not how fast.
	{name: "bucket of 20/s, burst 20, Retry-After: 1", server: bucketServer(20, 20, serverrules.RejectFor(429, "1"))},
	{name: "bucket of 20/s, no burst, Retry-After: 1", server: bucketServer(20, 0, serverrules.RejectFor(429, "1"))},
	{name: "bucket of 20/s, burst 20, Retry-After: 5", server: bucketServer(20, 20, serverrules.RejectFor(429, "5"))},
	{name: "bucket of 20/s, burst 20, Retry-After: 15", server: bucketServer(20, 20, serverrules.RejectFor(429, "15"))},
	{name: "bucket of 20/s, burst 20, 503 with Retry-After: 2", server: bucketServer(20, 20, serverrules.RejectFor(503, "2"))},
	{name: "bucket of 20/s, burst 20, Retry-After: 0", server: bucketServer(20, 20, serverrules.RejectFor(429, "0"))},

	// Windows that reject without a statement. The probes of the stop find their end.
	{name: "window of 100 per 5 s, bare 429", server: func() serverrules.Server { return serverrules.ModQoS(100, window5) }},
	{name: "window of 100 per 5 s, bare 429, 100 at a time", server: func() serverrules.Server { return serverrules.ModQoS(100, window5) }, burst: 300},
	{name: "window of 20 per 1 s, bare 429", server: func() serverrules.Server { return serverrules.ModQoS(20, time.Second) }},
	{name: "window of 10 per 1 s, bare 429", server: func() serverrules.Server { return serverrules.ModQoS(10, time.Second) }},
	{name: "window of 50 per 30 s, bare 429", server: func() serverrules.Server { return serverrules.ModQoS(50, 30*time.Second) }, calls: 250, burst: 250},
	{name: "window of 60 per 7 s, bare 429", server: func() serverrules.Server { return serverrules.ModQoS(60, 7*time.Second) }, burst: 300},
	{name: "window of 5 per 1 s, bare 429", server: func() serverrules.Server { return serverrules.ModQoS(5, time.Second) }, calls: 150},
	{name: "window of 50 per 2 s, bare 429, 1,500 calls", server: func() serverrules.Server { return serverrules.ModQoS(50, 2*time.Second) }, calls: 1500, burst: 1500},
	{name: "window of 80 per 5 s of the clock, bare 429", server: rackServer(80, serverrules.RackBare), burst: 400},
	{name: "window of 80 per 5 s of the clock, Retry-After", server: rackServer(80, serverrules.RackRetryAfter), burst: 400},
	{name: "window of 80 per 5 s of the clock, stated in rejections", server: rackServer(80, serverrules.RackReadme), burst: 400},
	{name: "window of 80 per 5 s of the clock, bare 429, twice", server: rackServer(80, serverrules.RackBare), burst: 200, pause: 47 * time.Second},
	{name: "window of 100 per 5 s, bare 503", server: statusOf(func() serverrules.Server { return serverrules.ModQoS(100, window5) }, 503)},

	// Sliding counters that state what is left. The last two are used by others, too.
	{name: "sliding counter, 100 per 5 s, no Retry-After, twice", server: slidingServer(serverrules.SlidingCounterConfig{Headers: serverrules.XRateLimit(time.Millisecond)}), burst: 400, pause: 47 * time.Second},
	{name: "sliding counter, 100 per 5 s, RateLimit fields, Retry-After of a unit, twice", server: slidingServer(serverrules.SlidingCounterConfig{Headers: serverrules.Draft8("default"), RetryAfter: serverrules.UntilUnit, Offset: 1300 * time.Millisecond}), burst: 400, pause: 47 * time.Second},
	{name: "sliding counter, 100 per 5 s, resets rounded down, Retry-After of a window, twice", server: slidingServer(serverrules.SlidingCounterConfig{Headers: serverrules.XRateLimit(time.Second), RetryAfter: serverrules.UntilWindow, Offset: 1300 * time.Millisecond}), burst: 400, pause: 47 * time.Second},
	{name: "sliding counter, 100 per 5 s, others use 8/s, RateLimit fields, Retry-After of a unit", server: slidingServer(serverrules.SlidingCounterConfig{Headers: serverrules.Draft8("default"), RetryAfter: serverrules.UntilUnit, Others: 8})},
	{name: "sliding counter, 100 per 5 s, others use 3/s, no Retry-After", server: slidingServer(serverrules.SlidingCounterConfig{Headers: serverrules.XRateLimit(time.Millisecond), Others: 3})},

	// Servers that count rejected requests, and that respond to them late.
	{name: "rejections count, 50 per 2 s, bare 429", server: haproxyServer(serverrules.HAProxyConfig{Rejection: serverrules.Reject(429)})},
	{name: "rejections count, 50 per 2 s, Retry-After: 2", server: haproxyServer(serverrules.HAProxyConfig{Rejection: serverrules.RejectFor(429, "2")})},
	{name: "rejections count, 50 per 2 s, bare 503", server: haproxyServer(serverrules.HAProxyConfig{Rejection: serverrules.Reject(503)})},
	{name: "sliding counter, 50 per 2 s, bare 429", server: haproxyServer(serverrules.HAProxyConfig{Rejection: serverrules.Reject(429), OnlyAccepted: true})},
	{name: "rejections count and take 3 s, bare 429", server: haproxyServer(serverrules.HAProxyConfig{Rejection: serverrules.Reply{Status: 429, Delay: 3 * time.Second}})},
	{name: "rejections count, connections closed after 2 s", server: haproxyServer(serverrules.HAProxyConfig{Rejection: serverrules.Reply{Drop: true, Delay: 2 * time.Second}})},

	// Bans.
	{name: "20 per 1 s, then a ban of 10 s, bare 429", server: func() serverrules.Server { return serverrules.ModEvasive(20, 10*time.Second, 429) }},
	{name: "20 per 1 s, then a ban of 10 s, bare 403", server: func() serverrules.Server { return serverrules.ModEvasive(20, 10*time.Second, 403) }},
	{name: "20 per 1 s, then a ban of 5 s, bare 403", server: func() serverrules.Server { return serverrules.Allow2Ban(20, time.Second, window5) }},
	{name: "bucket of 100 per 5 s, then a ban of 10 s, bare 429", server: func() serverrules.Server {
		return serverrules.Varnish(serverrules.VarnishConfig{Limit: 100, Per: window5, Block: 10 * time.Second})
	}},
	{name: "bucket of 100 per 5 s, then a ban of 3 s, bare 429, 1,000 calls", server: func() serverrules.Server {
		return serverrules.Varnish(serverrules.VarnishConfig{Limit: 100, Per: window5, Block: 3 * time.Second})
	}, calls: 1000},
	{name: "a ban of 4 s that each request renews, bare 429, twice", server: func() serverrules.Server { return renewedBan(30, 4*time.Second) }, calls: 240, pause: time.Minute},

	// Limits that change.
	{name: "20/s, from 20 s on 100/s, bare 429", server: switched(20*time.Second, bucketServer(20, 20, serverrules.Reject(429)), bucketServer(100, 100, serverrules.Reject(429))), calls: 1500, burst: 1500},
	{name: "20/s, from 10 s on 5/s, bare 429", server: switched(10*time.Second, bucketServer(20, 20, serverrules.Reject(429)), bucketServer(5, 5, serverrules.Reject(429)))},
	{name: "20/s, from 10 s on 5/s, bare 503", server: switched(10*time.Second, bucketServer(20, 20, serverrules.Reject(503)), bucketServer(5, 5, serverrules.Reject(503)))},
	{name: "20/s, from 20 s on no limit, bare 429", server: switched(20*time.Second, bucketServer(20, 20, serverrules.Reject(429)), noLimit), calls: 1500, burst: 1500},
	{name: "20/s, from 20 s on no limit, bare 503", server: switched(20*time.Second, bucketServer(20, 20, serverrules.Reject(503)), noLimit), calls: 1500, burst: 1500},
	{name: "20/s, from 10 s on no limit and few calls, bare 429", server: switched(10*time.Second, bucketServer(20, 20, serverrules.Reject(429)), noLimit), calls: 900, burst: 300, rate: 5},
	{name: "80 per 5 s, from 32 s on 40 per 5 s, bare 429", server: switched(32*time.Second, func() serverrules.Server { return serverrules.ModQoS(80, window5) }, func() serverrules.Server { return serverrules.ModQoS(40, window5) }), calls: 800, burst: 800},
	{name: "80 per 5 s, from 32 s on 200 per 5 s, bare 429", server: switched(32*time.Second, func() serverrules.Server { return serverrules.ModQoS(80, window5) }, func() serverrules.Server { return serverrules.ModQoS(200, window5) }), calls: 6000, burst: 6000},
	{name: "80 per 5 s that others use, too, from 32 s to 60 s, bare 429", server: othersUse(80, 30, 32*time.Second, time.Minute), calls: 1500, burst: 1500},

	// Faults of healthy servers are no limits.
	{name: "no limit, every 20th is a bare 429", server: func() serverrules.Server { return every(20, 429) }},
	{name: "no limit, every 4th is a bare 429", server: func() serverrules.Server { return every(4, 429) }},
	{name: "no limit, every 2nd is a bare 429", server: func() serverrules.Server { return every(2, 429) }},
	{name: "no limit, every 2nd is a bare 503", server: func() serverrules.Server { return every(2, 503) }},
	{name: "no limit, 30 % are a bare 503", server: randomly(.3, serverrules.Reject(503)), calls: 900},
	{name: "no limit, 30 % are a bare 429", server: randomly(.3, serverrules.Reject(429)), calls: 900},
	{name: "no limit, 10 % are closed connections", server: randomly(.1, serverrules.Reply{Drop: true}), calls: 900},
	{name: "no limit, 10 % are a 429 with Retry-After: 1", server: randomly(.1, serverrules.RejectFor(429, "1"))},
	{name: "no limit, every 10th is a 429 with Retry-After: 0", server: func() serverrules.Server { return everyReply(10, serverrules.RejectFor(429, "0")) }},
	{name: "no limit, bare 503 from 5 s to 9 s", server: during(5*time.Second, 9*time.Second, serverrules.Reject(503))},
	{name: "no limit, bare 429 from 5 s to 9 s", server: during(5*time.Second, 9*time.Second, serverrules.Reject(429))},
	{name: "no limit, bare 429 from 5 s to 80 s", server: during(5*time.Second, 80*time.Second, serverrules.Reject(429))},
	{name: "no limit, closed connections from 5 s to 9 s", server: during(5*time.Second, 9*time.Second, serverrules.Reply{Drop: true})},
	{name: "no limit, 429 with Retry-After: 3 from 5 s to 9 s", server: during(5*time.Second, 9*time.Second, serverrules.RejectFor(429, "3"))},
	{name: "no limit, one bare 429", server: func() serverrules.Server { return once(40, serverrules.Reject(429)) }},
	{name: "no limit, one bare 429 in a crowd", server: func() serverrules.Server { return once(700, serverrules.Reject(429)) }, calls: 3000, burst: 1000, rate: 1000},
	{name: "no limit, one 429 with Retry-After: 4 in a crowd", server: func() serverrules.Server { return once(700, serverrules.RejectFor(429, "4")) }, calls: 6000, burst: 1000, rate: 1000},
	{name: "no limit, the first is a bare 429", server: func() serverrules.Server { return once(1, serverrules.Reject(429)) }},
	{name: "no limit, responses take 1 s from 5 s to 9 s", server: during(5*time.Second, 9*time.Second, serverrules.Reply{Delay: time.Second})},
	{name: "no limit, responses take 5 s", server: func() serverrules.Server {
		return func(serverrules.Request) serverrules.Reply { return serverrules.Reply{Delay: 5 * time.Second} }
	}},
	{name: "no limit, no response from 90 ms to 400 ms, at the start", server: pausing(90*time.Millisecond, 400*time.Millisecond)},
	{name: "no limit, no response from 90 ms to 3 s, at the start", server: pausing(90*time.Millisecond, 3*time.Second)},
	{name: "no limit, no response from 5 s to 8 s", server: pausing(5*time.Second, 8*time.Second)},
	{name: "no limit, from request 31 on long polls of 20 s", server: replacing(noLimit, func(_ time.Duration, n int, reply serverrules.Reply) serverrules.Reply {
		if n > 30 {
			reply.Delay = 20 * time.Second
		}
		return reply
	}), calls: 60, burst: 60},
	{name: "no limit, of the requests from 31 on two of three take 3 s", server: replacing(noLimit, func(_ time.Duration, n int, reply serverrules.Reply) serverrules.Reply {
		if n > 30 && n%3 > 0 {
			reply.Delay = 3 * time.Second
		}
		return reply
	}), calls: 200, burst: 60},
	{name: "no limit, a crowd", server: noLimit, calls: 2000, burst: 2000},
	{name: "overload, 50/s and 10/s from 5 s to 15 s", server: func() serverrules.Server { return overload(5*time.Second, 15*time.Second) }, calls: 900},
	{name: "overload, a burst of 200", server: func() serverrules.Server { return overload(5*time.Second, 6*time.Second) }, calls: 600, burst: 200},

	// Several clients that do not communicate.
	{name: "three clients, bucket of 20/s, burst 20, bare 429", server: func() serverrules.Server { return nginx(429) }, clients: 3},
	{name: "three clients, window of 100 per 5 s, bare 429", server: func() serverrules.Server { return serverrules.ModQoS(100, window5) }, clients: 3},
}

// noLimit returns a server that accepts all requests.
func noLimit() serverrules.Server {
	return func(serverrules.Request) serverrules.Reply { return serverrules.Reply{} }
}

// bucketServer returns limit_req of nginx with nodelay.
func bucketServer(rate, burst int64, rejection serverrules.Reply) func() serverrules.Server {
	return func() serverrules.Server {
		return serverrules.Nginx(throttle.NginxConfig{Rate: rate, Per: time.Second, Burst: burst, NoDelay: true}, rejection)
	}
}

func rackServer(limit int64, headers serverrules.RackHeaders) func() serverrules.Server {
	return func() serverrules.Server { return serverrules.RackAttack(limit, window5, headers) }
}

func haproxyServer(c serverrules.HAProxyConfig) func() serverrules.Server {
	c.Limit, c.Per = 50, 2*time.Second
	return func() serverrules.Server { return serverrules.HAProxy(c) }
}

// slidingServer returns a sliding counter of 100 per 5 s.
func slidingServer(c serverrules.SlidingCounterConfig) func() serverrules.Server {
	c.Limit, c.Per = 100, window5
	return func() serverrules.Server { return serverrules.SlidingCounter(c) }
}

// statusOf returns s with status instead of the one of its rejections.
func statusOf(s func() serverrules.Server, status int) func() serverrules.Server {
	return replacing(s, func(_ time.Duration, _ int, reply serverrules.Reply) serverrules.Reply {
		if !reply.OK() {
			reply.Status = status
		}
		return reply
	})
}

// pausing returns a server without a limit that responds to requests between from and to at to.
func pausing(from, to time.Duration) func() serverrules.Server {
	return replacing(noLimit, func(at time.Duration, _ int, reply serverrules.Reply) serverrules.Reply {
		if at >= from && at < to {
			reply.Delay = to - at
		}
		return reply
	})
}

// replacing returns a server whose replies f may replace. at is the time since the first request, and n
// the number of the request, from 1 on.
func replacing(s func() serverrules.Server, f func(at time.Duration, n int, reply serverrules.Reply) serverrules.Reply) func() serverrules.Server {
	return func() serverrules.Server {
		var start time.Time
		n, serve := 0, s()
		return func(r serverrules.Request) serverrules.Reply {
			if n++; n == 1 {
				start = r.At
			}
			return f(r.At.Sub(start), n, serve(r))
		}
	}
}

// switched returns the first server until a time, and the second one after it.
func switched(when time.Duration, first, second func() serverrules.Server) func() serverrules.Server {
	return func() serverrules.Server {
		var start time.Time
		one, two := first(), second()
		return func(r serverrules.Request) serverrules.Reply {
			if start.IsZero() {
				start = r.At
			}
			if r.At.Sub(start) < when {
				return one(r)
			}
			return two(r)
		}
	}
}

// during replies with reply from one time to another.
func during(from, to time.Duration, reply serverrules.Reply) func() serverrules.Server {
	return replacing(noLimit, func(at time.Duration, _ int, was serverrules.Reply) serverrules.Reply {
		if at >= from && at < to {
			return reply
		}
		return was
	})
}

// once replies with reply to request n.
func once(n int, reply serverrules.Reply) serverrules.Server {
	return replacing(noLimit, func(_ time.Duration, i int, was serverrules.Reply) serverrules.Reply {
		if i == n {
			return reply
		}
		return was
	})()
}

// everyReply replies with reply to each nth request.
func everyReply(n int, reply serverrules.Reply) serverrules.Server {
	return replacing(noLimit, func(_ time.Duration, i int, was serverrules.Reply) serverrules.Reply {
		if i%n == 0 {
			return reply
		}
		return was
	})()
}

// randomly replies with reply to a share of the requests.
func randomly(share float64, reply serverrules.Reply) func() serverrules.Server {
	return func() serverrules.Server {
		random := rand.New(rand.NewPCG(5, 6))
		return replacing(noLimit, func(_ time.Duration, _ int, was serverrules.Reply) serverrules.Reply {
			if random.Float64() < share {
				return reply
			}
			return was
		})()
	}
}

// renewedBan accepts so many requests per second. The next one begins a ban, which each request begins
// anew.
func renewedBan(limit int, ban time.Duration) serverrules.Server {
	var until, second time.Time
	used := 0
	return func(r serverrules.Request) serverrules.Reply {
		if r.At.Sub(second) >= time.Second {
			second, used = r.At, 0
		}
		if used++; used > limit || r.At.Before(until) {
			until = r.At.Add(ban)
			return serverrules.Reject(http.StatusTooManyRequests)
		}
		return serverrules.Reply{}
	}
}

// othersUse returns a window of limit per 5 s, of which others use a part from one time to another.
func othersUse(limit, part int, from, to time.Duration) func() serverrules.Server {
	return func() serverrules.Server {
		var start, end time.Time
		left := 0
		return func(r serverrules.Request) serverrules.Reply {
			if start.IsZero() {
				start = r.At
			}
			if !r.At.Before(end) {
				end, left = r.At.Add(window5), limit
				if at := r.At.Sub(start); at >= from && at < to {
					left -= part
				}
			}
			if left--; left < 0 {
				return serverrules.Reject(http.StatusTooManyRequests)
			}
			return serverrules.Reply{}
		}
	}
}

// course returns what happened in one line: the requests, those that were rejected, the calls that
// failed, the time until the last call ended, the mean time at which an accepted request arrived, and
// when the first rejected ones did, in seconds.
func (s *simulation) course() string {
	var sum time.Duration
	accepted, rejected, same := 0, []string{}, 0
	for _, r := range s.requests {
		if r.accepted {
			sum += r.at
			accepted++
			continue
		}
		switch at, last := fmt.Sprintf("%.3f", r.at.Seconds()), len(rejected)-1; {
		case last >= 0 && (rejected[last] == at || strings.HasPrefix(rejected[last], at+" x ")):
			same++
			rejected[last] = fmt.Sprintf("%s x %d", at, same)
		case last < 24:
			rejected, same = append(rejected, at), 1
		}
	}
	return fmt.Sprintf("%s\n  %d requests, %d rejected, %d calls failed, %.3f s, mean %.3f s\n  %s\n",
		s.name, len(s.requests), s.rejected(), s.failed, s.elapsed().Seconds(), (sum / time.Duration(max(accepted, 1))).Seconds(), strings.Join(rejected, ", "))
}

// Each rule of the tracker decides when requests are sent to one of these servers, so a change of a
// rule changes a course.
func TestCourses_areThoseOfTheTable(t *testing.T) {
	file := filepath.Join("testdata", "courses.txt")
	var text strings.Builder
	for _, one := range courses {
		c := *one
		if c.calls == 0 {
			c.calls = 400
		}
		if c.burst == 0 {
			c.burst = 60
		}
		if c.rate == 0 {
			c.rate = 30
		}
		text.WriteString(c.run().course())
	}
	if *updatePlots {
		require.NoError(t, os.MkdirAll("testdata", 0o750))
		require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text.String(), "go test ./quota -run TestCourses -update writes the table")
}
