package throttlehttp

import (
	"slices"
	"strings"
)

// maxForwardedBytes is the longest line of Forwarded that is read.
const maxForwardedBytes = 8 << 10

// forwardedHops reads a line of Forwarded (RFC 7239, section 4):
//
//	for=192.0.2.43;proto=https, for="[2001:db8:cafe::17]:4711";by=_edge
//
// A line is believed as a whole or not at all. It must be read from the left, because
// only so one knows what is quoted; and a client may begin a quotation that is to
// swallow what the proxies add:
//
//	for=6.6.6.6;by=", for=192.0.2.7
//
// Whatever they add closes as many quotations as it opens, so that such a line ends
// inside of one, or has text right after one, and is not well-formed.
//
// More is accepted than the RFC allows where proxies are known to do so, and no line
// gets another meaning by it: blanks around semicolons, and addresses with a colon or
// in brackets that are not quoted.
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

// lastFirst brings the last of n values, which were put into room round and round, into
// the order from last to first.
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

// forwardedElement reads up to the next comma, which rest begins with, or the end. node
// is the value of for, "" if there is none.
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

// forwardedPair reads name=value.
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

// tokenLen returns how many bytes at the beginning of s can stand in a token (RFC 9110,
// section 5.6.2).
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

// parseQuoted reads a quoted-string behind its first quote (RFC 9110, section 5.6.4).
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
