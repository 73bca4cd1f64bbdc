package quota

import (
	"math/rand/v2"
	"net/http"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/serverrules"
)

// rule returns a server that follows a rule of package serverrules, for one path.
func rule(s serverrules.Server) server {
	return func(now time.Time) (int, http.Header) {
		reply := s(serverrules.Request{At: now, Path: "/"})
		if reply.OK() {
			return http.StatusOK, reply.Header
		}
		return reply.Status, reply.Header
	}
}

// The rejections of these servers state nothing, or only when to come back. The ideal time is that of
// a client that knows the limit. Up to 30 requests are in flight when the limit is met, and at most
// a few tests follow.
func TestTracker_learnsWindows(t *testing.T) {
	const window = 5 * time.Second
	for name, tt := range map[string]struct {
		server  func() serverrules.Server
		ideal   [2]time.Duration
		wasted  [2]int
		elapsed [2]float64 // of the ideal
	}{
		"from the first request": {
			func() serverrules.Server { return serverrules.ModQoS(80, window) },
			[2]time.Duration{2 * window, 2 * window}, [2]int{30, 5}, [2]float64{1.25, 1.15},
		},
		"of the clock": {
			func() serverrules.Server { return serverrules.RackAttack(80, window, serverrules.RackBare) },
			[2]time.Duration{2 * window, 8300 * time.Millisecond}, [2]int{30, 5}, [2]float64{1.25, 1.15},
		},
		"of the clock, stated by rejections": {
			func() serverrules.Server { return serverrules.RackAttack(80, window, serverrules.RackReadme) },
			[2]time.Duration{2 * window, 8300 * time.Millisecond}, [2]int{30, 5}, [2]float64{1.25, 1.15},
		},
		"of the clock, Retry-After": {
			func() serverrules.Server { return serverrules.RackAttack(80, window, serverrules.RackRetryAfter) },
			[2]time.Duration{2 * window, 8300 * time.Millisecond}, [2]int{30, 5}, [2]float64{1.25, 1.15},
		},
	} {
		for _, rtt := range []time.Duration{time.Millisecond, 50 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)))
				random := rand.New(rand.NewPCG(1, 2))
				tr, s := &Tracker{Rand: random.Float64}, rule(tt.server())
				for i := range 2 {
					j := play(t, tr, s, 240, 30, rtt)
					t.Logf("%s, %v, job %d: %v", name, rtt, i+1, j)
					require.Zero(t, j.failed, "%s, %v, job %d: %v", name, rtt, i+1, j)
					over := j.elapsed.Seconds() / tt.ideal[i].Seconds()
					goal(t, "learned windows", j.throttled <= tt.wasted[i] && over <= tt.elapsed[i], "%s, %v, job %d: %v", name, rtt, i+1, j)
					time.Sleep(time.Until(time.Date(2026, time.January, 1, 0, 1, 1, 700e6, time.UTC)))
				}
			})
		}
	}
}

// flooredReset returns a server that admits limit requests per window, which begins with its first
// request, and rounds the times of its resets down to seconds, as ulule/limiter does.
func flooredReset(limit int, per time.Duration) serverrules.Server {
	var end time.Time
	used := 0
	return func(r serverrules.Request) serverrules.Reply {
		if !r.At.Before(end) {
			end, used = r.At.Add(per), 0
		}
		used++
		reply := serverrules.Reply{Header: http.Header{}}
		reply.Header.Set("X-RateLimit-Limit", strconv.Itoa(limit))
		reply.Header.Set("X-RateLimit-Remaining", strconv.Itoa(max(limit-used, 0)))
		reply.Header.Set("X-RateLimit-Reset", strconv.FormatInt(end.Unix(), 10))
		if used > limit {
			reply.Status = http.StatusTooManyRequests
		}
		return reply
	}
}

// Servers that state their limits in each response, but not how the stated resets are to be
// understood: two jobs of 300 calls, the first of which begins within a second of the server's clock.
// The ideal time is that of a client which knows the limits.
func TestTracker_learnsHowResetsAreStated(t *testing.T) {
	const window = 5 * time.Second
	for name, tt := range map[string]struct {
		server  func() serverrules.Server
		ideal   time.Duration
		wasted  [2]int
		elapsed [2]float64 // of the ideal
	}{
		"sliding log, the reset moves": {
			func() serverrules.Server { return serverrules.FlaskMoving(100, window) },
			2 * window, [2]int{8, 5}, [2]float64{1.25, 1.15},
		},
		"two limits of one name": {
			func() serverrules.Server {
				return serverrules.Envoy(serverrules.EnvoyLimit{Limit: 20, Unit: time.Second}, serverrules.EnvoyLimit{Limit: 100, Unit: time.Minute})
			},
			2*time.Minute + 4*time.Second, [2]int{30, 30}, [2]float64{1.25, 1.25},
		},
		"rounded down": {
			func() serverrules.Server { return flooredReset(100, window) },
			2 * window, [2]int{8, 5}, [2]float64{1.25, 1.15},
		},
	} {
		for _, begin := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 700 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
				time.Sleep(time.Until(start.Add(begin)))
				tr, s := seeded(1), rule(tt.server())
				for i := range 2 {
					j := play(t, tr, s, 300, 30, time.Millisecond)
					t.Logf("%s, begun at %v, job %d: %v", name, begin, i+1, j)
					over := j.elapsed.Seconds() / tt.ideal.Seconds()
					goal(t, "how resets are stated", j.failed == 0 && j.throttled <= tt.wasted[i] && over <= tt.elapsed[i], "%s, begun at %v, job %d: %v", name, begin, i+1, j)
					time.Sleep(time.Until(start.Add(4*time.Minute + 1700*time.Millisecond)))
				}
			})
		}
	}
}

// A learned window is reported when it is inferred.
func TestTracker_reportsLearnedWindows(t *testing.T) {
	for name, tt := range map[string]struct {
		server serverrules.Server
		want   []LimitLearnedInfo
	}{
		"window": {
			serverrules.ModQoS(50, 5*time.Second),
			[]LimitLearnedInfo{{Host: "api.test", Limit: "api.test: learned rate", Size: 50, Per: 5 * time.Second}},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []LimitLearnedInfo
			events := &Events{LimitLearned: func(l LimitLearnedInfo) {
				if l.Size > 0 {
					got = append(got, l)
				}
			}}
			tr := seeded(1)
			tr.Mode = Full
			tr.Listen(events)
			j := play(t, tr, rule(tt.server), 100, 30, time.Millisecond)
			require.Equal(t, tt.want, got, "%s: %v", name, j)
			runtime.KeepAlive(events)
		})
	}
}

// The probe after a window may fail for another reason. Then the next request is the probe.
func TestTracker_probesAWindowAgainAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited, n, failures := rule(serverrules.ModQoS(50, 5*time.Second)), 0, 0
		s := func(now time.Time) (int, http.Header) {
			status, h := limited(now)
			if n++; status == http.StatusOK && n > 100 && failures < 3 {
				failures++
				return http.StatusInternalServerError, nil
			}
			return status, h
		}
		j := play(t, seeded(1), s, 200, 20, time.Millisecond)
		require.Zero(t, j.failed, "%v", j)
		require.Equal(t, 3, failures)
		require.Less(t, j.elapsed, 25*time.Second, "%v", j)
	})
}
