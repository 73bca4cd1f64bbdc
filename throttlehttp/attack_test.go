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
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// A handClock is moved by hand, also back.
type handClock struct{ now atomic.Int64 }

func (c *handClock) Now() time.Time                       { return time.Unix(0, c.now.Load()) }
func (c *handClock) After(time.Duration) <-chan time.Time { return nil }

const (
	eachHas  = 5       // units an hour of each key, and at once
	room     = 1 << 10 // for keys
	invented = 10_000
	mostHeap = 1 << 20 // bytes, of which a map would need twice as many
)

// manyKeys are limiters that a server of strangers would use, each with room for few
// of the keys below.
func manyKeys(clk throttle.Clock) map[string]throttle.Limiter {
	l := throttle.Limit{Count: eachHas, Per: time.Hour}
	return map[string]throttle.Limiter{
		"buckets": throttle.NewKeyedBuckets(throttle.Buckets{Limit: l, Max: room}, clk),
		"keyed": &throttle.Keyed{Max: room, Clock: clk, New: func(string) throttle.Limiter {
			return throttle.NewTokenBucket(l, clk)
		}},
		"sketch": sketch.NewLimiter(sketch.Plan{Limit: l, Clients: room, Seed: 1}, clk),
	}
}

// A door is a limited handler that counts whom it let in. It can be used by one
// goroutine at a time.
type door struct {
	http.Handler
	open atomic.Int64
}

func limited(rules ...throttlehttp.Rule) *door {
	d := new(door)
	m := &throttlehttp.Middleware{Rules: rules}
	d.Handler = m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { d.open.Add(1) }))
	return d
}

// let reports whether r is let in.
func (d *door) let(r *http.Request) bool {
	before := d.open.Load()
	d.ServeHTTP(httptest.NewRecorder(), r)
	return d.open.Load() > before
}

// exhaust uses up what the sender of r has, and returns how much that was.
func (d *door) exhaust(t *testing.T, r *http.Request) (n int) {
	for d.let(r) {
		n++
		require.Less(t, n, 1000, "there is no end to it")
	}
	return n
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Who makes up an API key for each request fills no memory, washes nothing away that is
// known of others, and gets no more than his address may have.
func TestAttack_inventedKeysGainNothing(t *testing.T) {
	clk := new(handClock)
	for name, byKey := range manyKeys(clk) {
		byIP := throttle.NewKeyedBuckets(throttle.Buckets{Limit: throttle.PerHour(200)}, clk)
		d := limited(throttlehttp.Rule{Limiter: byKey, Key: throttlehttp.APIKey}, throttlehttp.Rule{Limiter: byIP, Key: throttlehttp.IP{}.Key})
		ann := via("192.0.2.99:1", "X-API-Key", "ann's")
		require.Equal(t, eachHas, d.exhaust(t, ann), name)

		before := heap()
		got := 0
		eve := from("X-API-Key", "")
		for i := range invented {
			eve.Header["X-Api-Key"][0] = "invented " + strconv.Itoa(i)
			if d.let(eve) {
				got++
			}
		}
		require.LessOrEqual(t, got, 200, "%s: what her address has", name)
		require.Less(t, heap()-before, int64(mostHeap), name)
		require.False(t, d.let(ann), "%s: ann's was forgotten", name)
		runtime.KeepAlive(byKey)
	}
}

// Without a limit by address invented keys do gain something, up to the room that the
// limiter has, and then nothing more.
func TestAttack_inventedKeysAreBoundedByRoom(t *testing.T) {
	clk := new(handClock)
	for name, l := range manyKeys(clk) {
		d := limited(throttlehttp.Rule{Limiter: l, Key: throttlehttp.APIKey})
		before := heap()
		eve := from("X-API-Key", "")
		for i := range invented {
			eve.Header["X-Api-Key"][0] = "invented " + strconv.Itoa(i)
			d.let(eve)
		}
		require.Less(t, heap()-before, int64(mostHeap), name)
		runtime.KeepAlive(l)
		if name == "sketch" {
			continue // it knows nobody and has no such end: the more there were, the fewer new ones it lets in
		}
		most := room*8/5 + 64*eachHas // as many buckets as there are, and what is shared when they are in use
		require.LessOrEqual(t, d.open.Load(), int64(most), name)
	}
}

func TestAttack_forgedAddressesGainNothing(t *testing.T) {
	clk := new(handClock)
	headers := []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "Client-Ip", "X-Originating-Ip"}
	for name, tt := range map[string]struct {
		ip    throttlehttp.IP
		peer  string
		added http.Header // by the proxy
	}{
		"no proxies":           {throttlehttp.IP{}, "192.0.2.7:%d", nil},
		"a stranger":           {throttlehttp.IP{Trusted: proxied}, "192.0.2.7:%d", nil},
		"of his network":       {throttlehttp.IP{Trusted: proxied}, "[2001:db8:7:7::%x]:80", nil},
		"through a proxy":      {throttlehttp.IP{Trusted: proxied}, "10.0.0.2:%d", http.Header{"X-Forwarded-For": {"192.0.2.7, 203.0.113.1"}}},
		"Forwarded by a proxy": {throttlehttp.IP{Trusted: proxied, Header: "Forwarded"}, "10.0.0.2:%d", http.Header{"Forwarded": {`for=192.0.2.7`}}},
		"behind a Unix socket": {throttlehttp.IP{TrustUnix: true}, "@", http.Header{"X-Forwarded-For": {"192.0.2.7"}}},
	} {
		for kind, l := range manyKeys(clk) {
			d := limited(throttlehttp.Rule{Limiter: l, Key: tt.ip.Key})
			for i := range 500 {
				r := from()
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
				d.let(r)
			}
			require.EqualValues(t, eachHas, d.open.Load(), "%s, %s", name, kind)
		}
	}
}

// A broken list costs its sender what the proxy has, which all who do so share.
func TestAttack_brokenListsShareOneKey(t *testing.T) {
	clk := new(handClock)
	ip := throttlehttp.IP{Trusted: proxied, Header: "Forwarded"}
	d := limited(throttlehttp.Rule{Limiter: manyKeys(clk)["buckets"], Key: ip.Key})
	for i := range 1000 {
		d.let(forwarded(fmt.Sprintf(`for=6.6.6.%d;by="%d, for=192.0.2.7`, i%256, i)))
	}
	require.EqualValues(t, eachHas, d.open.Load())
	require.Equal(t, eachHas, d.exhaust(t, forwarded("for=192.0.2.7")), "and who is honest has his own")
}

// Headers of 1 MiB, each another, are neither kept nor shown.
func TestAttack_longHeadersAreNotKept(t *testing.T) {
	clk := new(handClock)
	raw := func(r *http.Request) (string, bool) { return r.Header.Get("X-Tenant"), true }
	for name, l := range manyKeys(clk) {
		for i, by := range []throttlehttp.KeyFunc{
			throttlehttp.APIKey, throttlehttp.Bearer, throttlehttp.Header("X-Tenant"), raw,
			throttlehttp.JoinKey(throttlehttp.Header("X-Tenant"), throttlehttp.Path), throttlehttp.JoinKey(raw),
		} {
			d := limited(throttlehttp.Rule{Limiter: l, Key: by})
			before := heap()
			for j := range 3 {
				long := strings.Repeat("x", 1<<20) + strconv.Itoa(j)
				d.let(from("X-API-Key", long, "X-Tenant", long, "Authorization", "Bearer "+long, "X-Forwarded-For", long))
			}
			require.EqualValues(t, 3, d.open.Load(), "each is a client: %s %d", name, i)
			require.Less(t, heap()-before, int64(1<<20), "%s %d", name, i)
		}
		runtime.KeepAlive(l)
	}
}

// Bytes that end strings or lines elsewhere neither make two clients one, nor one two,
// and no answer has them.
func TestAttack_oddBytesAreNothingSpecial(t *testing.T) {
	clk := new(handClock)
	names := []string{"eve", "eve\x00", "eve\x00\x00", "eve\n", "eve\r\n", "\neve", "eve\nX-Admin: 1", "eve\xff", "eve:", "eve=", "3:eve"}
	by := throttlehttp.JoinKey(throttlehttp.Named("tenant", func(r *http.Request) (string, bool) { return r.Header["X-Tenant"][0], true }), throttlehttp.Path)
	for kind, l := range manyKeys(clk) {
		m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: l, Key: by}}}
		h := m.Handler(ok)
		for _, name := range names {
			r := from()
			r.Header["X-Tenant"] = []string{name}
			granted := 0
			for range eachHas + 3 {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code == http.StatusOK {
					granted++
				}
				require.NotContains(t, fmt.Sprint(w.Header(), w.Body), "eve", "%q", name)
			}
			require.Equal(t, eachHas, granted, "%s %q", kind, name)
		}
	}
}

// A clock that jumps to and fro gives nobody more than the time that it has shown.
func TestAttack_steppedClocksGiveNothing(t *testing.T) {
	start := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for seed := range uint64(20) {
		clk := new(handClock)
		clk.now.Store(start.UnixNano())
		for name, l := range manyKeys(clk) {
			clk.now.Store(start.UnixNano())
			rnd := rand.New(rand.NewPCG(seed, 5))
			d := limited(throttlehttp.Rule{Limiter: l, Key: throttlehttp.IP{}.Key})
			first, last := start, start
			for range 400 {
				clk.now.Add(rnd.Int64N(int64(20*time.Minute)) - int64(9*time.Minute))
				if now := clk.Now(); now.After(last) {
					last = now
				} else if now.Before(first) {
					first = now
				}
				d.let(from())
			}
			shown := int64(last.Sub(first))
			most := eachHas + eachHas*shown/int64(time.Hour)
			if name == "sketch" { // by the windows that this is part of
				most = eachHas * (2 + shown/int64(time.Hour))
			}
			require.LessOrEqual(t, d.open.Load(), most, "%s, seed %d", name, seed)
			require.Positive(t, d.open.Load())
		}
	}
}

// Nor does one that leaves all that can be counted.
func TestAttack_wildClocksDoNotPanic(t *testing.T) {
	clk := new(handClock)
	for name, l := range manyKeys(clk) {
		d := limited(throttlehttp.Rule{Limiter: l, Key: throttlehttp.IP{}.Key})
		for range 3 {
			for _, ns := range []int64{0, 1<<63 - 1, -1 << 63, -1, 1 << 62, 1, -1 << 62} {
				clk.now.Store(ns)
				d.let(from())
			}
		}
		require.LessOrEqual(t, d.exhaust(t, from()), eachHas, name)
	}
}

// All at once: eve from many goroutines gets no more than from one.
func TestAttack_haste(t *testing.T) {
	clk := new(handClock)
	for name, l := range manyKeys(clk) {
		d := limited(throttlehttp.Rule{Limiter: l, Key: throttlehttp.IP{Trusted: proxied}.Key})
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
		require.EqualValues(t, eachHas, d.open.Load(), name)
	}
}
