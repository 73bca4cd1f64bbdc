package throttlehttp_test

import (
	"strings"
	"testing"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// TestHeader_takesNamesOfTokens checks that the name of a header may contain exactly the
// bytes that RFC 9110, section 5.6.2 allows in a token.
func TestHeader_takesNamesOfTokens(t *testing.T) {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for c := range 256 {
		name := string([]byte{byte(c)})
		for _, name := range []string{name, "x" + name, name + "x"} {
			if strings.IndexByte(token, byte(c)) >= 0 {
				require.NotPanics(t, func() { throttlehttp.Header(name) }, "%q", name)
			} else {
				require.Panics(t, func() { throttlehttp.Header(name) }, "%q", name)
			}
		}
	}
}
