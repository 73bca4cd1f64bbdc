package throttlehttp

import (
	"net/netip"
	"strings"
)

// maxHops is the maximum number of hops of a request that are read. It bounds the time that a
// header with many hops can cost.
const maxHops = 32

// A hopParser selects the syntax in which one line of a header lists hops. parse returns the
// hops from last to first, at most len(buf) of them. It returns none if the line is malformed
// and cannot be trusted.
type hopParser int

const (
	parseList      hopParser = iota // X-Forwarded-For
	parseForwarded                  // RFC 7239
)

func (parser hopParser) parse(line string, buf []string) []string {
	if parser == parseForwarded {
		return forwardedHops(line, buf)
	}
	return listHops(line, buf)
}

// firstUntrusted follows the hops of a header backwards from peer, which is trusted. It
// returns the first hop that is not trusted, or the last address that a trusted hop reported
// if there is none. lines are in the order of the header: proxies that do not append to a
// line add a line after it.
func (ip IP) firstUntrusted(peer netip.Addr, lines []string, parser hopParser) netip.Addr {
	var buf [maxHops]string
	at := peer
	for left := maxHops; left > 0 && len(lines) > 0; lines = lines[:len(lines)-1] {
		hops := parser.parse(lines[len(lines)-1], buf[:left])
		for _, hop := range hops {
			a, ok := parseNode(hop)
			if !ok {
				return at
			}
			if at = a; !ip.isTrusted(at) {
				return at
			}
		}
		if len(hops) == 0 {
			return at
		}
		left -= len(hops)
	}
	return at
}

// listHops parses a line of X-Forwarded-For. An empty item between two commas counts as a hop
// without an address.
func listHops(line string, buf []string) []string {
	for i := range buf {
		comma := strings.LastIndexByte(line, ',')
		buf[i] = strings.Trim(line[comma+1:], " \t")
		if comma < 0 {
			return buf[:i+1]
		}
		line = line[:comma]
	}
	return buf
}

// parseNode parses an address, with or without a port, in the forms of headers and
// RemoteAddr: 192.0.2.7, 192.0.2.7:80, 2001:db8::1, [2001:db8::1]:80, [2001:db8::1]:_hidden.
func parseNode(s string) (a netip.Addr, ok bool) {
	const maxBytes = 100 // maximum length of an address with a zone and a port
	if s == "" || len(s) > maxBytes {
		return a, false
	}
	s, port, mustBeIPv6 := splitPort(s)
	if zone := strings.IndexByte(s, '%'); zone >= 0 {
		s, mustBeIPv6 = s[:zone], true
	}
	a, err := netip.ParseAddr(s)
	if err != nil || mustBeIPv6 && !a.Is6() || !isPort(port) {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// splitPort splits s into an address without brackets and the port with its colon, if any.
// mustBeIPv6 is true if the address was in brackets.
func splitPort(s string) (addr, port string, mustBeIPv6 bool) {
	if s[0] == '[' {
		if end := strings.IndexByte(s, ']'); end > 0 {
			return s[1:end], s[end+1:], true
		}
		return "", "", true
	}
	if colon := strings.IndexByte(s, ':'); colon >= 0 && colon == strings.LastIndexByte(s, ':') {
		return s[:colon], s[colon:], false
	}
	return s, "", false
}

// isPort reports whether s is empty, or a colon followed by a port number or by an obfuscated
// port (RFC 7239, section 6.3).
func isPort(s string) bool {
	if s == "" {
		return true
	}
	if len(s) < 2 || s[0] != ':' {
		return false
	}
	hidden := s[1] == '_'
	for i := 1; i < len(s); i++ {
		if !hidden && (s[i] < '0' || s[i] > '9') {
			return false
		}
	}
	return true
}
