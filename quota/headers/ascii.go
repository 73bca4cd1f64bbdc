package headers

// Header names and values are ASCII; these take them apart without copies.

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// countPrefix returns how many bytes at the start of s pass ok.
func countPrefix(s string, ok func(byte) bool) int {
	n := 0
	for n < len(s) && ok(s[n]) {
		n++
	}
	return n
}

// trimBlanks cuts blanks off both ends.
func trimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// toLower copies s into buf in lower case, as far as it fits.
func toLower(buf []byte, s string) []byte {
	n := min(len(s), len(buf))
	for i := range n {
		c := s[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[i] = c
	}
	return buf[:n]
}

// equalFold reports whether a and b are the same but for case.
func equalFold(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		x, y := a[i], b[i]
		if x != y && (x|0x20 != y|0x20 || !isLetter(x)) {
			return false
		}
	}
	return true
}

// cutOutsideQuotes cuts s at the first sep that is in no quoted string.
func cutOutsideQuotes(s string, sep byte) (before, after string) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == sep && !quoted:
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// smallInt returns the number that s writes, 0 if s is none.
func smallInt(s []byte) (n int) {
	for _, c := range s {
		if !isDigit(c) {
			return 0
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// hashWord adds a word to an FNV-1a hash of words; 0 is the hash of none.
func hashWord(h uint64, word []byte) uint64 {
	if h == 0 {
		h = 14695981039346656037
	}
	for _, c := range word {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return (h ^ '-') * 1099511628211
}
