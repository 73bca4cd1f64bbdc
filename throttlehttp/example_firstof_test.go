package throttlehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/heed-go/heed/throttlehttp"
)

// Requests of users count by user; all other requests count by address.
func ExampleFirstOf() {
	type userKey struct{}
	user := throttlehttp.FromContext("user", func(ctx context.Context) (string, bool) {
		name, ok := ctx.Value(userKey{}).(string)
		return name, ok
	})
	clientKey := throttlehttp.FirstOf(user, throttlehttp.IP{}.Key)

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Forwarded-For", "6.6.6.6") // ignored, because the peer is not Trusted
	fmt.Println(clientKey(r))
	fmt.Println(clientKey(r.WithContext(context.WithValue(r.Context(), userKey{}, "ann"))))
	// Output:
	// ip:192.0.2.1 true
	// context.user:ann true
}
