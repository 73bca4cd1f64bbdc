package rules

import (
	"strconv"
	"strings"
)

// A key of one value is that value. One of several has the length of each before
// it, so that no two lists of values are the same key, whatever a client sends.

// appendPart adds part to a key of several values.
func appendPart(key []byte, part string) []byte {
	key = strconv.AppendInt(key, int64(len(part)), 10)
	key = append(key, ':')
	return append(key, part...)
}

// cutPart returns the first value of such a key and what comes after it.
func cutPart(key string) (part, after string, ok bool) {
	digits, rest, found := strings.Cut(key, ":")
	n, err := strconv.Atoi(digits)
	if !found || err != nil || n < 0 || n > len(rest) {
		return "", "", false
	}
	return rest[:n], rest[n:], true
}
