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

func constantKey(key string) throttlehttp.KeyFunc {
	return func(*http.Request) (string, bool) { return key, true }
}

func TestComposite_needsAllParts(t *testing.T) {
	r := requestAs("ann")
	require.Equal(t, "join:16:context.user:ann12:ip:192.0.2.7", key(throttlehttp.Composite(user, throttlehttp.IP{}.Key), r))
	require.Equal(t, "?", key(throttlehttp.Composite(user, throttlehttp.Bearer), r))
	require.Equal(t, "?", key(throttlehttp.Composite(throttlehttp.Bearer, user), r))
}

// TestComposite_neverCollides compares keys of random parts, made of the few bytes that
// occur in lengths and separators, with the lists of parts themselves.
func TestComposite_neverCollides(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 1))
	parts := map[string]string{}
	for range 20_000 {
		of, list := []throttlehttp.KeyFunc(nil), []string(nil)
		for range 1 + rnd.IntN(4) {
			part := randomPart(rnd)
			of, list = append(of, constantKey(part)), append(list, part)
		}
		k, ok := throttlehttp.Composite(of...)(nil)
		require.True(t, ok)
		quoted := fmt.Sprintf("%q", list)
		if before, found := parts[k]; found {
			require.Equal(t, before, quoted, "%q", k)
		}
		parts[k] = quoted
	}
	require.Greater(t, len(parts), 10_000)
}

func randomPart(rnd *rand.Rand) string {
	switch rnd.IntN(10) {
	case 0: // text that looks like another key
		k, _ := throttlehttp.Composite(constantKey("1:"), constantKey(strconv.Itoa(rnd.IntN(20))))(nil)
		return k
	case 1: // so long that the whole key is hashed
		return strings.Repeat("1:", 250+rnd.IntN(20))
	}
	b := make([]byte, rnd.IntN(6))
	for i := range b {
		b[i] = "0123:=|\x00"[rnd.IntN(8)]
	}
	return string(b)
}

func TestComposite_ofOneDiffersFromItsPart(t *testing.T) {
	require.NotEqual(t, key(constantKey("a"), nil), key(throttlehttp.Composite(constantKey("a")), nil))
	nested := throttlehttp.Composite(throttlehttp.Composite(constantKey("a"), constantKey("b")), constantKey("c"))
	flat := throttlehttp.Composite(constantKey("a"), constantKey("b"), constantKey("c"))
	require.NotEqual(t, key(nested, nil), key(flat, nil))
}
