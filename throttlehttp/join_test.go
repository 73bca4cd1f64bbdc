package throttlehttp_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

func always(key string) throttlehttp.KeyFunc {
	return func(*http.Request) (string, bool) { return key, true }
}

func TestJoinKey_needsAllParts(t *testing.T) {
	r := as("ann")
	require.Equal(t, "join:16:context.user:ann12:ip:192.0.2.7", key(throttlehttp.JoinKey(user, throttlehttp.IP{}.Key), r))
	require.Equal(t, "?", key(throttlehttp.JoinKey(user, throttlehttp.Bearer), r))
	require.Equal(t, "?", key(throttlehttp.JoinKey(throttlehttp.Bearer, user), r))
}

// Random parts, of the few bytes of which lengths and separators are made, against the
// list of parts itself.
func TestJoinKey_neverCollides(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 1))
	parts := map[string]string{}
	for range 20_000 {
		of, list := []throttlehttp.KeyFunc(nil), []string(nil)
		for range 1 + rnd.IntN(4) {
			part := randomPart(rnd)
			of, list = append(of, always(part)), append(list, part)
		}
		k, ok := throttlehttp.JoinKey(of...)(nil)
		require.True(t, ok)
		said := fmt.Sprintf("%q", list)
		if before, found := parts[k]; found {
			require.Equal(t, before, said, "%q", k)
		}
		parts[k] = said
	}
	require.Greater(t, len(parts), 10_000)
}

func randomPart(rnd *rand.Rand) string {
	switch rnd.IntN(10) {
	case 0: // what another key looks like
		k, _ := throttlehttp.JoinKey(always("1:"), always(strconv.Itoa(rnd.IntN(20))))(nil)
		return k
	case 1: // so long that the whole is hashed
		return strings.Repeat("1:", 250+rnd.IntN(20))
	}
	b := make([]byte, rnd.IntN(6))
	for i := range b {
		b[i] = "0123:=|\x00"[rnd.IntN(8)]
	}
	return string(b)
}

func TestJoinKey_ofOneIsNotThatOne(t *testing.T) {
	require.NotEqual(t, key(always("a"), nil), key(throttlehttp.JoinKey(always("a")), nil))
	nested := throttlehttp.JoinKey(throttlehttp.JoinKey(always("a"), always("b")), always("c"))
	flat := throttlehttp.JoinKey(always("a"), always("b"), always("c"))
	require.NotEqual(t, key(nested, nil), key(flat, nil))
}
