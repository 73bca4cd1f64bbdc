package heedtest

import (
	"net/http"
	"strings"
)

// Silent is an Edit that takes back all that is said about limits, as servers
// that refuse without a word.
func Silent(h http.Header) {
	for key := range h {
		if strings.HasPrefix(key, "Ratelimit") || strings.HasPrefix(key, "X-Ratelimit") || key == "Retry-After" {
			delete(h, key)
		}
	}
}

// Say returns an Edit that says value under key on every answer, whatever is
// true: a Remaining that never changes, a Reset in another unit.
func Say(key, value string) func(http.Header) {
	return func(h http.Header) { h.Set(key, value) }
}
