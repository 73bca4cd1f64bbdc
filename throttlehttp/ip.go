package throttlehttp

import (
	"net/http"
	"net/netip"
	"strings"
)

// IP returns the address of a client as a key. The zero IP uses the address of the
// connection. Behind proxies, set Trusted to their addresses:
//
//	client ────────▶ edge ────────▶ balancer ────────▶ server
//	192.0.2.7     203.0.113.1       10.0.0.2
//
//	X-Forwarded-For: 6.6.6.6, 192.0.2.7, 203.0.113.1      RemoteAddr: 10.0.0.2
//	                 forged   the client   trusted                    trusted
//	                             ◀────────────────────────────────────────
//
// Each hop was appended by the hop to its right. The list is therefore read from right to
// left while hops are trusted. The first hop that is not trusted is the client; everything
// to the left of it was sent by the client itself and is ignored.
//
// If the list ends, or contains an item that is not an address, the last address that a
// trusted hop reported is the client, even if it is that of a proxy. A client that sends a
// malformed list therefore shares the key of a proxy and never gets a new one. This includes
// "unknown" and the obfuscated identifiers of RFC 7239 ("_gazonk"), which may differ for
// every request.
//
// IPv6 addresses count by network, because each customer has a whole network. IPv4 addresses
// embedded in IPv6 (::ffff:0:0/96, and 64:ff9b::/96 of RFC 6052) count as IPv4; as an IPv6
// network they would all be one client. Zones and ports are ignored.
//
// RemoteAddr must be the address of the connection. If an outer middleware overwrites it with
// an address from a header, clients can choose a trusted address.
type IP struct {
	// Trusted lists the addresses of the proxies whose header is read. It should be as
	// small as possible: a client inside of Trusted can choose any address, so a network
	// that also contains clients must not be listed. IPv4 networks may be written as
	// ::ffff:10.0.0.0/104. Empty means that no header is read.
	Trusted []netip.Prefix

	// Header is the name of the one header that the proxies set or append to. Forwarded
	// (RFC 7239) and X-Forwarded-For are lists. Any other header holds a single address, as
	// X-Real-IP and CF-Connecting-IP do. Empty means X-Forwarded-For.
	//
	// No other header is read, because proxies pass on headers that they do not set.
	Header string

	// TrustUnix makes connections without an address, such as those of Unix sockets,
	// trusted, so that their header is read. Otherwise their requests have no key.
	TrustUnix bool

	// IPv4Bits and IPv6Bits are the numbers of leading bits of an address that form the
	// key. Zero or less means 32 and 64. Internet providers often assign a /56 or /48 of IPv6 to
	// each customer.
	IPv4Bits, IPv6Bits int
}

// Key returns the address of the client, or its network, as a key. It is a KeyFunc.
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

// Region returns a KeyFunc for the region of the client's address. of returns the region, for
// instance from a table of countries, or "" if the region is unknown and the request has no
// key. Region panics if of is nil.
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

// Addr returns the address of the client. ok is false if the address is unknown.
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

// addrFromHeader returns the address of the client that the header of a trusted peer reports.
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

// unmapped returns the IPv4 network that is embedded in p, whose address is an IPv4-mapped
// IPv6 address: 10.0.0.0/8 for ::ffff:10.0.0.0/104. It returns an invalid prefix, which
// contains no address, if p is larger than all of IPv4.
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

// fromNAT64 returns the IPv4 address that is embedded in a NAT64 address, and any other
// address unchanged.
func fromNAT64(a netip.Addr) netip.Addr {
	if !nat64.Contains(a) {
		return a
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}
