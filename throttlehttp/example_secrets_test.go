package throttlehttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/heed-go/heed/throttlehttp"
)

// Instances that share limits in Redis must share a Key, for instance from their
// configuration. A token that has not been issued is not a key: its requests count by address.
func ExampleSecrets() {
	tokens := &throttlehttp.Secrets{
		Key:      []byte("32 random bytes, in a real program"),
		Validate: func(token string) bool { return token == "s3cr3t" },
	}
	clientKey := throttlehttp.FirstOf(tokens.Bearer, throttlehttp.IP{}.Key)
	for _, token := range []string{"s3cr3t", "guess"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		name, _ := clientKey(r)
		fmt.Println(name)
	}
	// Output:
	// bearer=ed03777b6344551a9bcaa647d27f741e
	// ip:192.0.2.1
}
