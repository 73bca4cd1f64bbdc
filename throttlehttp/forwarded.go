package throttlehttp

import (
	"slices"
	"strings"
)

// maxForwardedBytes is the maximum length of a line of Forwarded; longer lines are rejected.
const maxForwardedBytes = 8 << 10

// forwardedHops parses a line of Forwarded (RFC 7239, section 4):
//
//	for=192.0.2.43;proto=https, for="[2001:db8:cafe::17]:4711";by=_edge
//
// It accepts or rejects a line as a whole. It must parse from the left to know which parts
// are quoted, and a client may open a quotation to hide what the proxies append:
//
//	for=6.6.6.6;by=", for=192.0.2.7
//
// Proxies append balanced quotations, so such a line ends inside of a quotation or has text
// directly after one, and is malformed.
//
// forwardedHops also accepts two deviations from the RFC that are known from proxies and
// do not make a line ambiguous: blanks around semicolons, and addresses with a colon or
// brackets that are not quoted.
func forwardedHops(line string, buf []string) []string {
	if len(line) > maxForwardedBytes {
		return nil
	}
	n := 0
	for more := true; more; n++ {
		node, rest, ok := forwardedElement(line)
		if !ok {
			return nil
		}
		buf[n%len(buf)] = node
		if more = rest != ""; more {
			line = rest[1:]
		}
	}
	return lastFirst(buf, n)
}

// lastFirst returns the last of n values, which were written to buf as a ring, in order from
// last to first.
func lastFirst(buf []string, n int) []string {
	if n > len(buf) {
		first := n % len(buf)
		slices.Reverse(buf[:first])
		slices.Reverse(buf[first:])
		return buf
	}
	slices.Reverse(buf[:n])
	return buf[:n]
}

// forwardedElement parses up to the next comma, with which rest begins, or to the end of s.
// node is the value of the parameter for, or "" if there is none.
func forwardedElement(s string) (node, rest string, ok bool) {
	found := false
	for {
		s = strings.TrimLeft(s, " \t")
		switch {
		case s == "" || s[0] == ',':
			return node, s, true
		case s[0] == ';':
			s = s[1:]
			continue
		}
		name, value, after, ok := forwardedPair(s)
		if !ok {
			return "", "", false
		}
		if strings.EqualFold(name, "for") {
			if found {
				return "", "", false
			}
			node, found = value, true
		}
		if s = strings.TrimLeft(after, " \t"); s != "" && s[0] != ';' && s[0] != ',' {
			return "", "", false
		}
	}
}

// forwardedPair parses name=value.
func forwardedPair(s string) (name, value, rest string, ok bool) {
	end := tokenLen(s)
	name, s = s[:end], s[end:]
	if name == "" || !strings.HasPrefix(s, "=") {
		return "", "", "", false
	}
	if s = s[1:]; strings.HasPrefix(s, `"`) {
		value, rest, ok = parseQuoted(s[1:])
		return name, value, rest, ok
	}
	end = tokenLen(s)
	for end < len(s) && strings.IndexByte(":[]", s[end]) >= 0 {
		end++
		end += tokenLen(s[end:])
	}
	return name, s[:end], s[end:], end > 0
}

// tokenLen returns the length of the longest prefix of s that is a token (RFC 9110, section
// 5.6.2).
func tokenLen(s string) int {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return i
		}
	}
	return len(s)
}

// parseQuoted parses a quoted-string after its opening quote (RFC 9110, section 5.6.4).
func parseQuoted(s string) (value, rest string, ok bool) {
	plain := true
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' && plain:
			return s[:i], s[i+1:], true
		case c == '"':
			return unescape(s[:i]), s[i+1:], true
		case c == '\\':
			i++
			if i == len(s) || isControl(s[i]) {
				return "", "", false
			}
			plain = false
		case isControl(c):
			return "", "", false
		}
	}
	return "", "", false
}

func isControl(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }

func unescape(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}
