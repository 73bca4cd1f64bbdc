package quota

import (
	"hash/maphash"
	"net/http"
	"strings"
)

// maxSegments of a path tell routes apart; what follows is the same route.
const maxSegments = 8

// maxSegment is the length of a segment that may be a word.
const maxSegment = 24

// routeOf hashes what tells the routes of an API apart: whether it reads or
// writes, and the path without what looks like an identifier.
//
//	GET /v1/users/4711/orders   ->   reads v1 users * orders   (v1 counts as one, too)
func routeOf(seed maphash.Seed, req *http.Request) uint64 {
	var buf [maxRoute]byte
	return maphash.Bytes(seed, appendRoute(buf[:0], req))
}

// maxRoute is the length of a route at most.
const maxRoute = 1 + maxSegments*(1+maxSegment)

func appendRoute(buf []byte, req *http.Request) []byte {
	if req.Method == "" || req.Method == http.MethodGet || req.Method == http.MethodHead {
		buf = append(buf, 'r')
	}
	path := strings.Trim(req.URL.Path, "/")
	for range maxSegments {
		segment, rest, more := strings.Cut(path, "/")
		buf = append(buf, '/')
		if !looksLikeID(segment) {
			buf = append(buf, segment...)
		}
		if !more {
			break
		}
		path = rest
	}
	return buf
}

// looksLikeID reports whether a segment of a path names one thing among many:
// with a digit or an @, or too long for a word.
func looksLikeID(segment string) bool {
	return len(segment) > maxSegment || strings.ContainsAny(segment, "0123456789@")
}
