package rules

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSearch_keepsNothingOfARequest checks that a pooled search does not keep strings of a request
// alive.
func TestSearch_keepsNothingOfARequest(t *testing.T) {
	s := &search{hits: make([]hit, 0, 4), key: []byte("key")}
	s.hits = append(s.hits, hit{rule: new(rule), key: "secret"}, hit{rule: new(rule), key: "other"})
	s.req, s.set, s.parts[0], s.values[0] = new(http.Request), new(Set), "secret", value{text: "secret"}
	s.reset()
	require.Equal(t, search{key: s.key, hits: s.hits}, *s)
	require.Empty(t, s.hits)
	require.Empty(t, s.key)
	require.Equal(t, []hit{{}, {}, {}, {}}, s.hits[:4])

	s.key = make([]byte, 0, 1<<12+1)
	s.reset()
	require.Nil(t, s.key, "a long key is not kept")
}

func TestLint_findsALimitOfOneThatCostsTwo(t *testing.T) {
	for cost, odd := range map[string]bool{"1": false, "2": true} {
		found, err := Lint([]byte("domain: d\nlimits: [{name: a, rate_limit: {unit: hour, requests_per_unit: 1, cost: "+cost+"}}]"), Config{})
		require.NoError(t, err)
		require.Equal(t, odd, len(found) > 0 && strings.Contains(found[0].Problem, "a request costs 2 and no more than 1 are available at a time"), "%v", found)
	}
}

// TestSet_writeToCountsBytes checks that WriteTo returns the number of written bytes, also with an
// error.
func TestSet_writeToCountsBytes(t *testing.T) {
	set, err := Load("testdata/all.yaml", testConfig)
	require.NoError(t, err)
	var b strings.Builder
	n, err := set.WriteTo(&b)
	require.NoError(t, err)
	require.EqualValues(t, b.Len(), n)
	require.Equal(t, set.String(), b.String())

	for _, space := range []int{0, 1, 10, b.Len() - 1} {
		short := &shortWriter{space: space}
		n, err = set.WriteTo(short)
		require.ErrorIs(t, err, errFull)
		require.EqualValues(t, space, n)
	}
}

// A shortWriter accepts a limited number of bytes.
type shortWriter struct{ space int }

var errFull = http.ErrContentLength

func (w *shortWriter) Write(p []byte) (int, error) {
	if len(p) > w.space {
		n := w.space
		w.space = 0
		return n, errFull
	}
	w.space -= len(p)
	return len(p), nil
}

// Values of headers that carry secrets are hashed in keys, and still select the limits of their values.
func TestSearch_secretsAreHashedInKeys(t *testing.T) {
	set, err := Parse([]byte(`
domain: d
values: {api_key: {header: x-api-key}, auth: {header: Authorization}, user: {header: X-User}}
descriptors:
- {key: api_key, rate_limit: {name: each, unit: hour, requests_per_unit: 1}}
- {key: auth, value: Bearer admin, rate_limit: {name: admin, unit: hour, requests_per_unit: 1}}
- {key: user, rate_limit: {name: user, unit: hour, requests_per_unit: 1}}
limits:
- {name: route, key: [api_key, user], rate_limit: {unit: hour, requests_per_unit: 1}}
`), Config{})
	require.NoError(t, err)
	got := strings.Join(matchedLimits(set, readRequest(t, "GET /\nX-API-Key: key-4711\nX-User: ann\nAuthorization: Bearer admin")), "\n")
	require.NotContains(t, got, "4711")
	require.Contains(t, got, "each, "+hashed("key-4711"))
	require.Contains(t, got, "admin")
	require.Contains(t, got, "user, ann")
	require.Contains(t, got, "route, 71:"+hashed("key-4711")+"3:ann")
	other := strings.Join(matchedLimits(set, readRequest(t, "GET /\nX-API-Key: key-4712\nX-User: ann")), "\n")
	require.NotContains(t, other, hashed("key-4711"))
	require.NotContains(t, other, "admin")
}
