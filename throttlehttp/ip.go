package throttlehttp

import (
	"net/http"
	"net/netip"
	"strings"
)

// IP names clients by their address. The zero IP takes that of the connection. Behind
// proxies, say which addresses they have:
//
//	client ────────▶ edge ────────▶ balancer ────────▶ server
//	192.0.2.7     203.0.113.1       10.0.0.2
//
//	X-Forwarded-For: 6.6.6.6, 192.0.2.7, 203.0.113.1      RemoteAddr: 10.0.0.2
//	                 forged   the client   trusted                    trusted
//	                             ◀────────────────────────────────────────
//
// Each hop is vouched for by the one to its right. So the list is read from the right,
// as long as hops are trusted, and the first that is not is the client: what stands left
// of it is what the client itself sent. A proxy that was lied to told the truth about
// whom it talked to.
//
// Where the list ends, or has something that is no address, the last hop vouched for is
// the client, which then is one of the proxies. So who breaks the list can share the
// proxy's key with others who do, and never gets a new one. That includes "unknown" and
// the hidden names of RFC 7239 ("_gazonk"), which may be made anew for every request.
//
// IPv6 addresses count by network, since everybody has a whole one. IPv4 addresses in
// IPv6 (::ffff:0:0/96, and 64:ff9b::/96 of RFC 6052) count as IPv4: as a network they
// would be one client. Zones and ports are dropped.
//
// RemoteAddr must be that of the connection. A middleware in front that writes into it
// what a header says makes all clients trusted.
type IP struct {
	// Trusted are the addresses of the proxies whose header is read, best a few of them. A
	// client inside of Trusted can choose any address, so a network that also has clients
	// is too large. IPv4 networks may be written as ::ffff:10.0.0.0/104. Empty means that
	// no header is read.
	Trusted []netip.Prefix

	// Header is the one header that the proxies set or add to. Forwarded (RFC 7239) and
	// X-Forwarded-For are lists. Any other holds one address, once, like X-Real-IP or
	// CF-Connecting-IP. "": X-Forwarded-For.
	//
	// No other header is looked at, ever: proxies pass on what they do not set.
	Header string

	// TrustUnix takes the word of connections that have no address, like those of Unix
	// sockets. False: their clients are unidentified.
	TrustUnix bool

	// IPv4Bits and IPv6Bits are how much of an address is looked at. 0: 32 and 64, one
	// address and one network. Customers often get a /56 of IPv6, or a /48.
	IPv4Bits, IPv6Bits int
}

// Key is a KeyFunc.
func (ip IP) Key(r *http.Request) (key string, ok bool) {
	a, ok := ip.Addr(r)
	if !ok {
		return "", false
	}
	var buf [64]byte
	b := append(buf[:0], "ip:"...)
	a = fromNAT64(a)
	if bits := ip.prefixBits(a); bits < a.BitLen() {
		network, _ := a.Prefix(bits)
		b = network.AppendTo(b)
	} else {
		b = a.AppendTo(b)
	}
	return string(b), true
}

// Region names clients by where their address is, as of says, for instance with a table
// of countries. It names nobody if of returns "".
func (ip IP) Region(of func(netip.Addr) string) KeyFunc {
	if of == nil {
		panic("throttlehttp: IP.Region: no function: give one that knows where an address is")
	}
	return func(r *http.Request) (string, bool) {
		a, ok := ip.Addr(r)
		if !ok {
			return "", false
		}
		return plainKey("region", of(fromNAT64(a)))
	}
}

// Addr returns the address of the client, if one is known.
func (ip IP) Addr(r *http.Request) (a netip.Addr, ok bool) {
	peer, ok := parseNode(r.RemoteAddr)
	switch {
	case ok && !ip.isTrusted(peer):
		return peer, true
	case !ok && !ip.TrustUnix:
		return netip.Addr{}, false
	}
	a = ip.addrFromHeader(peer, r.Header)
	return a, a.IsValid()
}

// addrFromHeader returns the client that the header of a trusted peer names.
func (ip IP) addrFromHeader(peer netip.Addr, h http.Header) netip.Addr {
	switch name := ip.Header; {
	case name == "":
		return ip.firstUntrusted(peer, h["X-Forwarded-For"], parseList)
	case strings.EqualFold(name, "X-Forwarded-For"):
		return ip.firstUntrusted(peer, h["X-Forwarded-For"], parseList)
	case strings.EqualFold(name, "Forwarded"):
		return ip.firstUntrusted(peer, h["Forwarded"], parseForwarded)
	default:
		if a, ok := parseNode(single(h.Values(name))); ok {
			return a
		}
		return peer
	}
}

func (ip IP) isTrusted(a netip.Addr) bool {
	for _, p := range ip.Trusted {
		if p.Contains(a) || a.Is4() && p.Addr().Is4In6() && unmapped(p).Contains(a) {
			return true
		}
	}
	return false
}

// unmapped returns the IPv4 network that p, whose address is IPv4 in IPv6, stands for:
// 10.0.0.0/8 for ::ffff:10.0.0.0/104. A p that is larger than all of IPv4 stands for none.
func unmapped(p netip.Prefix) netip.Prefix {
	return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
}

func (ip IP) prefixBits(a netip.Addr) int {
	bits, defaultBits := ip.IPv6Bits, 64
	if a.Is4() {
		bits, defaultBits = ip.IPv4Bits, 32
	}
	if bits <= 0 {
		return defaultBits
	}
	return bits
}

var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// fromNAT64 returns the IPv4 address that a translator put into a.
func fromNAT64(a netip.Addr) netip.Addr {
	if !nat64.Contains(a) {
		return a
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}
