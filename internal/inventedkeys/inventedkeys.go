// Package inventedkeys attacks a limiter that has a limit per key with keys that clients
// invent, and counts what that does to others. Tests and bench/attack use it.
package inventedkeys

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Clock is set by a Scenario.
type Clock struct {
	// Sleep is called with the time by which the clock is advanced, for limiters that have other
	// work in virtual time. Nil means no call.
	Sleep func(time.Duration)

	ns atomic.Int64
}

// set sets the clock to a time after the beginning.
func (c *Clock) set(ns int64) {
	if before := c.ns.Swap(ns); c.Sleep != nil && ns > before {
		c.Sleep(time.Duration(ns - before))
	}
}

// Now implements throttle.Clock.
func (c *Clock) Now() time.Time { return time.Unix(1<<30, c.ns.Load()) }

// After implements throttle.Clock.
func (c *Clock) After(time.Duration) <-chan time.Time { return nil }

// A Scenario is an attack with invented keys. Each invented key is the /64 of an address in
// one of Networks /48s, in turn. The attack lasts for Length. Meanwhile, at each of Moments
// instants, Honest new clients make their first request, and those of the moment before their
// second. They have IPv4 addresses in 512 /24s. A limited client in the first network of the
// attack uses all of its units before the attack, and makes requests until one is rejected
// at each moment; another one does so from the first moment on.
type Scenario struct {
	Networks int
	Keys     int           // number of invented keys
	Cost     int64         // units that each invented key claims
	Length   time.Duration // of the attack
	Moments  int
	Honest   int // number of new clients at each moment; at most 131,072 in all moments
}

// A Result says what became of other clients during an attack.
type Result struct {
	FirstServed  int   // minimum over all moments of the new clients that were served
	SecondServed int   // minimum over all moments of the clients that were served a second time
	Limited      int64 // units granted to the limited client
	Late         int64 // units granted to the one that came after the attack had begun
	Attacker     int64 // units granted to invented keys
}

// Run attacks l, which must read clk.
func (s Scenario) Run(l throttle.Limiter, clk *Clock) Result {
	r := Result{FirstServed: s.Honest, SecondServed: s.Honest}
	r.Limited = exhaust(l, "ip:2001:db8:0:ffff::/64")
	step := s.Keys / s.Moments
	for i := range s.Keys {
		clk.set(int64(s.Length) / int64(s.Keys) * int64(i))
		if claim(l, inventedKey(i, s.Networks), s.Cost) {
			r.Attacker += s.Cost
		}
		if (i+1)%step > 0 {
			continue
		}
		moment := i / step
		r.Limited += exhaust(l, "ip:2001:db8:0:ffff::/64")
		r.Late += exhaust(l, "ip:2001:db8:0:fffe::/64")
		r.FirstServed = min(r.FirstServed, s.served(l, moment))
		if moment > 0 {
			r.SecondServed = min(r.SecondServed, s.served(l, moment-1))
		}
	}
	return r
}

// served returns how many of the clients that are new at a moment are served.
func (s Scenario) served(l throttle.Limiter, moment int) (n int) {
	for i := range s.Honest {
		if claim(l, honestKey(moment*s.Honest+i), 1) {
			n++
		}
	}
	return n
}

func claim(l throttle.Limiter, key string, cost int64) bool {
	d, err := l.Reserve(context.Background(), throttle.Claim{Key: key, Cost: cost})
	return err == nil && d.OK
}

// exhaust makes claims of one unit until one is rejected, and returns the number of grants.
func exhaust(l throttle.Limiter, key string) (n int64) {
	for n < 1<<20 && claim(l, key, 1) {
		n++
	}
	return n
}

// inventedKey returns the key of the i-th /64 of the attack, as throttlehttp.IP does.
func inventedKey(i, networks int) string {
	n, j := i%networks, i/networks
	// 2001:db8:n::/48 has 65,536 /64s. Further ones are invented by the last bits of the key.
	a := [16]byte{0x20, 0x01, 0x0d, 0xb8, byte(n >> 8), byte(n), byte(j >> 8), byte(j), byte(j >> 24), byte(j >> 16)}
	b := append(make([]byte, 0, 64), "ip:"...)
	b = netip.AddrFrom16(a).AppendTo(b)
	return string(append(b, "/64"...))
}

// honestKey returns the key of the i-th address of 198.18.0.0/15, in 512 networks in turn.
func honestKey(i int) string {
	n, host := i%512, i/512
	b := append(make([]byte, 0, 32), "ip:"...)
	return string(netip.AddrFrom4([4]byte{198, 18 + byte(n>>8), byte(n), byte(host)}).AppendTo(b))
}
