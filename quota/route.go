package quota

import (
	"context"
	"crypto/sha256"
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
//
// A request with a quota name is of the route with that name, whatever its path.
func routeOf(seed maphash.Seed, req *http.Request) uint64 {
	var buf [maxRoute]byte
	route := appendRoute(buf[:0], req)
	return marked(maphash.Bytes(seed, route), route)
}

// namedRoute is the bit of a hash that says that the route is a quota name.
const namedRoute = 1 << 63

// marked returns hash, that of route, with namedRoute as it is.
func marked(hash uint64, route []byte) uint64 {
	if len(route) > 0 && route[0] == nameMark {
		return hash | namedRoute
	}
	return hash &^ namedRoute
}

// nameMark begins a route that is a quota name.
const nameMark = '='

type nameKey struct{}

// WithName returns a context whose requests use the quota of a server that the program calls
// name, where the URL does not tell which quota that is: a model or a deployment in the body of
// the request, or a partition. Requests of one account with different names share no quota,
// unless the server states that a rejection is meant for all, and requests with one name share
// one, whatever their paths. An empty name means that the path tells. heed.RequestOptions has a
// field QuotaName for it.
func WithName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

// nameOf returns the quota name of req; "" if it has none.
func nameOf(req *http.Request) string {
	name, _ := req.Context().Value(nameKey{}).(string)
	return name
}

// maxRoute is the length of a route at most.
const maxRoute = 1 + maxSegments*(1+maxSegment)

func appendRoute(buf []byte, req *http.Request) []byte {
	if name := nameOf(req); name != "" {
		buf = append(buf, nameMark)
		if len(name) <= maxRoute-1 {
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
