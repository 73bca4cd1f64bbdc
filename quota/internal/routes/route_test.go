package routes

import (
	"hash/maphash"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func request(t testing.TB, url string) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	return req
}

// A route is whether a request reads or writes, and its path without identifiers.
func TestHash_ofRoutes(t *testing.T) {
	seed := maphash.MakeSeed()
	route := func(method, path string) uint64 {
		req := request(t, "https://api.test"+path)
		req.Method = method
		return Hash(seed, req)
	}
	for _, same := range [][4]string{
		{"GET", "/users/1", "GET", "/users/2"},
		{"GET", "/users/1", "HEAD", "/users/1/"},
		{"GET", "/users/1?page=2", "", "/users/1"},
		{"POST", "/orders/9f8c", "PUT", "/orders/11aa"},
	} {
		require.Equal(t, route(same[0], same[1]), route(same[2], same[3]), "%q", same)
	}
	for _, other := range [][4]string{
		{"GET", "/users", "GET", "/search"},
		{"GET", "/users", "POST", "/users"},
		{"GET", "/users/1", "GET", "/users/1/orders"},
		{"GET", "/ab/c", "GET", "/a/bc"},
	} {
		require.NotEqual(t, route(other[0], other[1]), route(other[2], other[3]), "%q", other)
	}
}

// The name of a quota is its route, if it is short, and otherwise its hash.
func TestAppend_namesAreBounded(t *testing.T) {
	for n, want := range map[int]int{1: 2, Max - 1: Max, Max: 33, 10 * Max: 33} {
		req := request(t, "https://api.test/users/17")
		req = req.WithContext(WithName(req.Context(), strings.Repeat("n", n)))
		route := Append(nil, req)
		require.Len(t, route, want, n)
		require.EqualValues(t, nameMark, route[0])
		require.True(t, IsNamed(Mark(0, route)))
		require.Equal(t, uint64(7|namedRoute), Mark(7, route))
	}
	require.EqualValues(t, 7, Mark(7|namedRoute, []byte("r/")))
}
