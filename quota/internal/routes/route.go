package routes

import (
	"context"
	"crypto/sha256"
	"hash/maphash"
	"net/http"
	"strings"
)

const (
	maxSegments = 8  // path segments that distinguish routes; the others are ignored
	maxSegment  = 24 // bytes of a segment that may be a word

	// Max is the number of bytes that Append appends at most.
	Max = 1 + maxSegments*(1+maxSegment)

	nameMark   = '='     // begins a route that is a quota name
	namedRoute = 1 << 63 // bit of the hash of such a route
)

type nameKey struct{}

// WithName returns a context whose requests have the route called name, whatever their paths. An empty name
// means that the path is the route.
func WithName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

// Hash returns a hash of the route of req: whether it reads or writes, and its path without
// the segments that look like identifiers.
//
//	GET /v1/users/4711/orders   ->   reads * users * orders   (v1 contains a digit, too)
//
// A request with a quota name has the route of that name, whatever its path.
func Hash(seed maphash.Seed, req *http.Request) uint64 {
	var buf [Max]byte
	route := Append(buf[:0], req)
	return Mark(maphash.Bytes(seed, route), route)
}

// Mark returns hash, that of route, with the bit namedRoute set if and only if route is a quota
// name.
func Mark(hash uint64, route []byte) uint64 {
	if route[0] == nameMark {
		return hash | namedRoute
	}
	return hash &^ namedRoute
}

// IsNamed reports whether route is the hash of a quota name.
func IsNamed(route uint64) bool { return route&namedRoute != 0 }

// Append appends the route of req to buf. A path segment is taken for an identifier, one of
// many, if it contains a digit or an @, or is too long for a word.
func Append(buf []byte, req *http.Request) []byte {
	if name, _ := req.Context().Value(nameKey{}).(string); name != "" {
		buf = append(buf, nameMark)
		if len(name) <= Max-1 {
			return append(buf, name...)
		}
		sum := sha256.Sum256([]byte(name))
		return append(buf, sum[:]...)
	}
	if req.Method == "" || req.Method == http.MethodGet || req.Method == http.MethodHead {
		buf = append(buf, 'r')
	}
	path := strings.Trim(req.URL.Path, "/")
	for range maxSegments {
		segment, rest, more := strings.Cut(path, "/")
		buf = append(buf, '/')
		isID := len(segment) > maxSegment
		for i := 0; i < len(segment) && !isID; i++ {
			isID = '0' <= segment[i] && segment[i] <= '9' || segment[i] == '@'
		}
		if !isID {
			buf = append(buf, segment...)
		}
		if !more {
			break
		}
		path = rest
	}
	return buf
}
