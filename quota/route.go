package quota

import (
	"hash/maphash"
	"net/http"
	"strings"
)

// maxSegments of a path tell routes apart; what follows is the same route.
const maxSegments = 8

// routeOf hashes what tells the routes of an API apart: whether it reads or
// writes, and the path without what looks like an identifier.
//
//	GET /v1/users/4711/orders   ->   reads v1 users * orders   (v1 counts as one, too)
func routeOf(seed maphash.Seed, req *http.Request) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	if req.Method == "" || req.Method == http.MethodGet || req.Method == http.MethodHead {
		h.WriteByte('r')
	}
	path := strings.Trim(req.URL.Path, "/")
	for range maxSegments {
		segment, rest, more := strings.Cut(path, "/")
		h.WriteByte('/')
		if !looksLikeID(segment) {
			h.WriteString(segment)
		}
		if !more {
			break
		}
		path = rest
	}
	return h.Sum64()
}

// looksLikeID reports whether a segment of a path names one thing among many:
// with a digit or an @, or too long for a word.
func looksLikeID(segment string) bool {
	return len(segment) > 24 || strings.ContainsAny(segment, "0123456789@")
}
