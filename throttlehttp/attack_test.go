package throttlehttp_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// A manualClock is a clock that the test sets, also backwards.
type manualClock struct{ now atomic.Int64 }

func (c *manualClock) Now() time.Time                       { return time.Unix(0, c.now.Load()) }
func (c *manualClock) After(time.Duration) <-chan time.Time { return nil }

const (
	perKey        = 5       // units per hour of each key, and burst
	maxKeys       = 1 << 10 // capacity of the limiters, in keys
	inventedKeys  = 10_000
	maxHeapGrowth = 1 << 20 // bytes; a map of all invented keys would need twice as many
)

// keyedLimiters returns limiters for unauthenticated clients, with a capacity for a fraction
// of the invented keys.
func keyedLimiters(clk throttle.Clock) map[string]throttle.Limiter {
	l := throttle.Limit{Count: perKey, Per: time.Hour}
	return map[string]throttle.Limiter{
		"buckets": throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: l, Max: maxKeys}), clk),
		"keyed": &keyed.Limiter{Max: maxKeys, Clock: clk, New: func(string) throttle.Limiter {
			return throttle.WithClock(throttle.NewTokenBucket(l), clk)
		}},
		"sketch": throttle.WithClock(sketch.NewLimiter(sketch.LimiterConfig{Limit: l, Clients: maxKeys, Seed: 1}), clk),
	}
}

// A countingHandler is a limited handler that counts the requests that it serves. It is not
// safe for concurrent use.
type countingHandler struct {
	http.Handler
	served atomic.Int64
}

func newCountingHandler(rules ...throttlehttp.Rule) *countingHandler {
	d := new(countingHandler)
	m := &throttlehttp.Middleware{Rules: rules}
	d.Handler = m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { d.served.Add(1) }))
	return d
}

// allows reports whether r is served.
func (d *countingHandler) allows(r *http.Request) bool {
	before := d.served.Load()
	d.ServeHTTP(httptest.NewRecorder(), r)
	return d.served.Load() > before
}

// exhaust sends r until it is rejected, and returns how many times it was served.
func (d *countingHandler) exhaust(t *testing.T, r *http.Request) (n int) {
	for d.allows(r) {
		n++
		require.Less(t, n, 1000, "there is no end to it")
	}
	return n
}

// heapInUse returns the number of bytes of live heap objects.
func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestAttack_inventedKeysGainNothing checks that a client that makes up an API key for
// each request fills no memory, does not displace the state of other clients, and is
// served no more requests than its address may send.
func TestAttack_inventedKeysGainNothing(t *testing.T) {
	clk := new(manualClock)
	for name, byKey := range keyedLimiters(clk) {
		byIP := throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(200)}), clk)
		d := newCountingHandler(throttlehttp.Rule{Limiter: byKey, Key: throttlehttp.APIKey}, throttlehttp.Rule{Limiter: byIP, Key: throttlehttp.IP{}.Key})
		ann := via("192.0.2.99:1", "X-API-Key", "ann's")
		require.Equal(t, perKey, d.exhaust(t, ann), name)

		before := heapInUse()
		got := 0
		eve := requestFrom("X-API-Key", "")
		for i := range inventedKeys {
			eve.Header["X-Api-Key"][0] = "invented " + strconv.Itoa(i)
			if d.allows(eve) {
				got++
			}
		}
		require.LessOrEqual(t, got, 200, "%s: what her address has", name)
		require.Less(t, heapInUse()-before, int64(maxHeapGrowth), name)
		require.False(t, d.allows(ann), "%s: ann's was forgotten", name)
		runtime.KeepAlive(byKey)
	}
}

// TestAttack_inventedAddressesAreBoundedByCapacity checks that the addresses that a client
// invents in its own network gain no more than the capacity of the limiter, and that clients
// of other networks are served. Keys without an address, which are of no known network, are
// all served instead, so that a client that invents them denies no other client; they need a
// limit by address as well, as in TestAttack_inventedKeysGainNothing.
func TestAttack_inventedAddressesAreBoundedByCapacity(t *testing.T) {
	clk := new(manualClock)
	for name, l := range keyedLimiters(clk) {
		d := newCountingHandler(throttlehttp.Rule{Limiter: l, Key: throttlehttp.IP{}.Key})
		before := heapInUse()
		eve := requestFrom()
		for i := range inventedKeys {
			eve.RemoteAddr = fmt.Sprintf("[2001:db8:7:%x::1]:4711", i)
			d.allows(eve)
		}
		require.Less(t, heapInUse()-before, int64(maxHeapGrowth), name)
		runtime.KeepAlive(l)
		if name == "sketch" {
			continue // it stores no keys and has no such capacity: with more keys it serves fewer new ones
		}
		most := maxKeys*8/5 + 64*perKey // the number of buckets, and the shared units when all buckets are in use
		require.LessOrEqual(t, d.served.Load(), int64(most), name)
		for i := range 2000 {
			eve.RemoteAddr = fmt.Sprintf("198.18.%d.%d:99", i>>8, i&255)
			require.True(t, d.allows(eve), "%s: %s", name, eve.RemoteAddr)
		}
	}
}

func TestAttack_forgedAddressesGainNothing(t *testing.T) {
	clk := new(manualClock)
	headers := []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "Client-Ip", "X-Originating-Ip"}
	for name, tt := range map[string]struct {
		ip    throttlehttp.IP
		peer  string
		added http.Header // headers that the proxy adds
	}{
		"no proxies":           {throttlehttp.IP{}, "192.0.2.7:%d", nil},
		"a stranger":           {throttlehttp.IP{Trusted: proxied}, "192.0.2.7:%d", nil},
		"of his network":       {throttlehttp.IP{Trusted: proxied}, "[2001:db8:7:7::%x]:80", nil},
		"through a proxy":      {throttlehttp.IP{Trusted: proxied}, "10.0.0.2:%d", http.Header{"X-Forwarded-For": {"192.0.2.7, 203.0.113.1"}}},
		"Forwarded by a proxy": {throttlehttp.IP{Trusted: proxied, Header: "Forwarded"}, "10.0.0.2:%d", http.Header{"Forwarded": {`for=192.0.2.7`}}},
		"behind a Unix socket": {throttlehttp.IP{TrustUnix: true}, "@", http.Header{"X-Forwarded-For": {"192.0.2.7"}}},
	} {
		for kind, l := range keyedLimiters(clk) {
			d := newCountingHandler(throttlehttp.Rule{Limiter: l, Key: tt.ip.Key})
			for i := range 500 {
				r := requestFrom()
				r.RemoteAddr = tt.peer
				if strings.Contains(tt.peer, "%") {
					r.RemoteAddr = fmt.Sprintf(tt.peer, i+1)
				}
				forged := fmt.Sprintf("6.6.%d.%d", i/256, i%256)
				for _, h := range headers {
					r.Header.Set(h, forged)
				}
				r.Header.Set("Forwarded", "for="+forged)
				for h, v := range tt.added {
					r.Header[h] = append(r.Header[h], v...)
				}
				d.allows(r)
			}
			require.EqualValues(t, perKey, d.served.Load(), "%s, %s", name, kind)
		}
	}
}

// TestAttack_brokenListsShareOneKey checks that requests with a malformed list share one
// key, that of the proxy.
func TestAttack_brokenListsShareOneKey(t *testing.T) {
	clk := new(manualClock)
	ip := throttlehttp.IP{Trusted: proxied, Header: "Forwarded"}
	d := newCountingHandler(throttlehttp.Rule{Limiter: keyedLimiters(clk)["buckets"], Key: ip.Key})
	for i := range 1000 {
		d.allows(forwardedRequest(fmt.Sprintf(`for=6.6.6.%d;by="%d, for=192.0.2.7`, i%256, i)))
	}
	require.EqualValues(t, perKey, d.served.Load())
	require.Equal(t, perKey, d.exhaust(t, forwardedRequest("for=192.0.2.7")), "and who is honest has his own")
}

// TestAttack_longHeadersAreNotKept checks that different headers of 1 MiB each are neither
// stored nor sent to clients.
func TestAttack_longHeadersAreNotKept(t *testing.T) {
	clk := new(manualClock)
	raw := func(r *http.Request) (string, bool) { return r.Header.Get("X-Tenant"), true }
	for name, l := range keyedLimiters(clk) {
		for i, by := range []throttlehttp.KeyFunc{
			throttlehttp.APIKey, throttlehttp.Bearer, throttlehttp.Header("X-Tenant"), raw,
			throttlehttp.Composite(throttlehttp.Header("X-Tenant"), throttlehttp.Path), throttlehttp.Composite(raw),
		} {
			d := newCountingHandler(throttlehttp.Rule{Limiter: l, Key: by})
			before := heapInUse()
			for j := range 3 {
				long := strings.Repeat("x", 1<<20) + strconv.Itoa(j)
				d.allows(requestFrom("X-API-Key", long, "X-Tenant", long, "Authorization", "Bearer "+long, "X-Forwarded-For", long))
			}
			require.EqualValues(t, 3, d.served.Load(), "each is a client: %s %d", name, i)
			require.Less(t, heapInUse()-before, int64(1<<20), "%s %d", name, i)
		}
		runtime.KeepAlive(l)
	}
}

// TestAttack_controlBytesAreOrdinaryBytes checks that bytes that terminate strings or
// lines elsewhere do not make different keys equal or equal keys different, and that
// responses do not contain them.
func TestAttack_controlBytesAreOrdinaryBytes(t *testing.T) {
	clk := new(manualClock)
	names := []string{"eve", "eve\x00", "eve\x00\x00", "eve\n", "eve\r\n", "\neve", "eve\nX-Admin: 1", "eve\xff", "eve:", "eve=", "3:eve"}
	by := throttlehttp.Composite(throttlehttp.KeyFrom("tenant", func(r *http.Request) (string, bool) { return r.Header["X-Tenant"][0], true }), throttlehttp.Path)
	for kind, l := range keyedLimiters(clk) {
		m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: l, Key: by}}}
		h := m.Handler(ok)
		for _, name := range names {
			r := requestFrom()
			r.Header["X-Tenant"] = []string{name}
			granted := 0
			for range perKey + 3 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code == http.StatusOK {
					granted++
				}
				require.NotContains(t, fmt.Sprint(w.Header(), w.Body), "eve", "%q", name)
			}
			require.Equal(t, perKey, granted, "%s %q", kind, name)
		}
	}
}

// TestAttack_steppedClocksGiveNothing checks that a clock that jumps back and forth gives
// no client more units than its whole range of readings allows.
func TestAttack_steppedClocksGiveNothing(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	seeds := uint64(20)
	if testing.Short() {
		seeds = 6
	}
	for seed := range seeds {
		clk := new(manualClock)
		clk.now.Store(start.UnixNano())
		for name, l := range keyedLimiters(clk) {
			clk.now.Store(start.UnixNano())
			rnd := rand.New(rand.NewPCG(seed, 5))
			d := newCountingHandler(throttlehttp.Rule{Limiter: l, Key: throttlehttp.IP{}.Key})
			first, last := start, start
			for range 400 {
				clk.now.Add(rnd.Int64N(int64(20*time.Minute)) - int64(9*time.Minute))
				if now := clk.Now(); now.After(last) {
					last = now
				} else if now.Before(first) {
					first = now
				}
				d.allows(requestFrom())
			}
			shown := int64(last.Sub(first))
			most := perKey + perKey*shown/int64(time.Hour)
			if name == "sketch" { // one more for each window that the span touches
				most = perKey * (2 + shown/int64(time.Hour))
			}
			require.LessOrEqual(t, d.served.Load(), most, "%s, seed %d", name, seed)
			require.Positive(t, d.served.Load())
		}
	}
}

// TestAttack_extremeClocksDoNotPanic checks that readings at the limits of int64 cause no
// panics.
func TestAttack_extremeClocksDoNotPanic(t *testing.T) {
	clk := new(manualClock)
	for name, l := range keyedLimiters(clk) {
		d := newCountingHandler(throttlehttp.Rule{Limiter: l, Key: throttlehttp.IP{}.Key})
		for range 3 {
			for _, ns := range []int64{0, 1<<63 - 1, -1 << 63, -1, 1 << 62, 1, -1 << 62} {
				clk.now.Store(ns)
				d.allows(requestFrom())
			}
		}
		require.LessOrEqual(t, d.exhaust(t, requestFrom()), perKey, name)
	}
}

// TestAttack_concurrentRequestsGainNothing checks that a client that sends from many
// goroutines is served no more requests than from one.
func TestAttack_concurrentRequestsGainNothing(t *testing.T) {
	clk := new(manualClock)
	for name, l := range keyedLimiters(clk) {
		d := newCountingHandler(throttlehttp.Rule{Limiter: l, Key: throttlehttp.IP{Trusted: proxied}.Key})
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 200 {
					forged := fmt.Sprintf("6.6.%d.%d", g, i)
					d.ServeHTTP(httptest.NewRecorder(), via("10.0.0.2:99", "X-Forwarded-For", forged+", 192.0.2.7"))
				}
			})
		}
		wg.Wait()
		require.EqualValues(t, perKey, d.served.Load(), name)
	}
}
