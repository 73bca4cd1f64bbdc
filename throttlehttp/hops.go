package throttlehttp

import (
	"net/netip"
	"strings"
)

// maxHops is how many proxies a request may have come through. What a client sends
// costs no more time than they do.
const maxHops = 32

// A hopParser finds the last hops of one line of a header, the last of all first, and no
// more than room is for. None: nothing in the line can be believed.
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

// firstUntrusted goes from peer, who is trusted, back along the lines of a header, and returns
// the first hop that is not trusted, or the last one that is vouched for. Lines come in
// the order of the request: proxies that do not add to a line add one below.
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

// listHops reads a line of X-Forwarded-For. Nothing between two commas is a hop, too,
// though one that nobody knows.
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

// parseNode reads an address, with or without a port, as headers and RemoteAddr have
// it: 192.0.2.7, 192.0.2.7:80, 2001:db8::1, [2001:db8::1]:80, [2001:db8::1]:_hidden.
func parseNode(s string) (a netip.Addr, ok bool) {
	const maxBytes = 100 // of an address with a zone and a port
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

// splitPort returns an address without brackets and what follows it. wide says that it
// must be one of IPv6.
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

// isPort reports whether s, with its colon, can be a port, a hidden one, or is none.
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
