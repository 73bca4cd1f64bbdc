package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
)

const (
	perHour = 5       // units of each key per hour, which is also the burst
	maxKeys = 1 << 20 // maximum number of keys
)

// A limiterKind is a way to limit each of many keys.
type limiterKind struct {
	name string
	make func(throttle.Clock) throttle.Limiter
	// maximum number of units granted to new keys in the given number of requests
	keys func(requests int64) int64
	peer bool
}

var limit = throttle.Limit{Count: perHour, Per: time.Hour}

var (
	buckets = limiterKind{
		name: "keyed.NewBuckets",
		make: func(clk throttle.Clock) throttle.Limiter {
			return throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: limit, Max: maxKeys}), clk)
		},
		keys: func(n int64) int64 { return n }, // keys without an address are of no known network: they replace each other
	}
	sketched = limiterKind{
		name: "sketch.Limiter",
		make: func(clk throttle.Clock) throttle.Limiter {
			return throttle.WithClock(sketch.NewLimiter(sketch.LimiterConfig{Limit: limit, Clients: maxKeys}), clk)
		},
		keys: func(n int64) int64 { return n }, // the sketch grants less to new keys the more keys there were
	}
	unboundedMap = limiterKind{
		name: "a map, x/time",
		make: func(throttle.Clock) throttle.Limiter { return &mapLimiter{keys: make(map[string]*rate.Limiter)} },
		keys: func(n int64) int64 { return n },
		peer: true,
	}
)

// A mapLimiter has a limiter for each key in a map, as many tutorials show.
type mapLimiter struct {
	mu   sync.Mutex
	keys map[string]*rate.Limiter
}

// Reserve implements throttle.Limiter.
func (r *mapLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.keys[c.Key]
	if l == nil {
		l = rate.NewLimiter(rate.Every(time.Hour/perHour), perHour)
		r.keys[c.Key] = l
	}
	return throttle.Decision{OK: l.Allow()}, nil
}

// Report implements throttle.Limiter.
func (r *mapLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (*mapLimiter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// An attack makes requests of a kind, and defines the limit of what it may gain.
type attack struct {
	name        string
	limiters    []limiterKind
	key         throttlehttp.KeyFunc
	secondKey   throttlehttp.KeyFunc           // of a second limit; nil: none
	forge       func(r *http.Request, i int64) // creates the i-th request
	step        func(clk *steppedClock, i int64)
	slowdown    int64 // factor by which the number of requests is reduced
	manyClients bool  // the requests come from many clients instead of one
}

var ours = []limiterKind{buckets, sketched}

var trustedProxies = throttlehttp.IP{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")}}

var (
	long  = strings.Repeat("x", 1<<20)
	hops  = strings.Repeat("10.0.0.9, ", 100_000)
	pairs = strings.Repeat("for=10.0.0.9, ", 100_000)
)

var attacks = []attack{
	{name: "a new API key each time", limiters: []limiterKind{buckets, sketched, unboundedMap}, manyClients: true, key: throttlehttp.APIKey, forge: func(r *http.Request, i int64) {
		r.Header["X-Api-Key"][0] = "invented " + strconv.FormatInt(i, 36)
	}},
	{name: "the same, and by address", limiters: ours, key: throttlehttp.APIKey, secondKey: trustedProxies.Key, forge: func(r *http.Request, i int64) {
		r.Header["X-Api-Key"][0] = "invented " + strconv.FormatInt(i, 36)
	}},
	{name: "a new name each time", limiters: ours, manyClients: true, key: throttlehttp.Header("X-Name"), forge: func(r *http.Request, i int64) {
		r.Header["X-Name"][0] = "\x00invented\n" + strconv.FormatInt(i, 36)
	}},
	{name: "forged X-Forwarded-For", limiters: ours, key: trustedProxies.Key, forge: func(r *http.Request, i int64) {
		r.RemoteAddr = "192.0.2.7:4711"
		r.Header["X-Forwarded-For"][0] = address(i)
	}},
	{name: "forged, through a proxy", limiters: ours, key: trustedProxies.Key, forge: func(r *http.Request, i int64) {
		r.Header["X-Forwarded-For"][0] = address(i) + ", 192.0.2.7"
	}},
	{name: "another address of its network", limiters: ours, key: throttlehttp.IP{}.Key, forge: func(r *http.Request, i int64) {
		r.RemoteAddr = "[2001:db8:7:7::" + strconv.FormatInt(i&0xffff, 16) + "]:4711"
	}},
	{name: "100,000 hops", limiters: ours, slowdown: 10, key: trustedProxies.Key, forge: func(r *http.Request, i int64) {
		r.Header["X-Forwarded-For"][0] = hops
	}},
	{name: "100,000 hops of Forwarded", limiters: ours, slowdown: 10, key: throttlehttp.IP{Trusted: trustedProxies.Trusted, Header: "Forwarded"}.Key, forge: func(r *http.Request, i int64) {
		r.Header["Forwarded"][0] = pairs
	}},
	{name: "a name of 1 MiB", limiters: ours, slowdown: 10_000, manyClients: true, key: throttlehttp.Header("X-Name"), forge: func(r *http.Request, i int64) {
		r.Header["X-Name"][0] = long + strconv.FormatInt(i, 36)
	}},
	{name: "an API key of 1 MiB", limiters: ours, slowdown: 10_000, manyClients: true, key: throttlehttp.APIKey, forge: func(r *http.Request, i int64) {
		r.Header["X-Api-Key"][0] = long + strconv.FormatInt(i, 36)
	}},
	{name: "the clock goes to and fro", limiters: ours, key: throttlehttp.IP{}.Key, forge: func(*http.Request, int64) {}, step: func(clk *steppedClock, i int64) {
		clk.Store([]int64{0, int64(30 * time.Minute), int64(-20 * time.Minute), int64(59 * time.Minute), 1}[i%5])
	}},
}

func address(i int64) string { return fmt.Sprintf("6.%d.%d.%d", i>>16&255, i>>8&255, i&255) }

// A steppedClock is set by the attack, within an hour.
type steppedClock struct{ atomic.Int64 }

func (c *steppedClock) Now() time.Time                       { return time.Unix(1<<30, c.Load()) }
func (c *steppedClock) After(time.Duration) <-chan time.Time { return nil }
