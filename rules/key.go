package rules

import (
	"strconv"
	"strings"
)

// The key of one value is that value. The key of several values contains the length of each value
// before it, so that different lists of values never have the same key, whatever a client sends.

// appendPart appends part to a key of several values.
func appendPart(key []byte, part string) []byte {
	key = strconv.AppendInt(key, int64(len(part)), 10)
	key = append(key, ':')
	return append(key, part...)
}

// cutPart returns the first value of a key of several values and the rest of the key.
func cutPart(key string) (part, after string, ok bool) {
	digits, rest, found := strings.Cut(key, ":")
	n, err := strconv.Atoi(digits)
	if !found || err != nil || n < 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}
