package throttlehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"

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

func ExampleComposite() {
	perPage := throttlehttp.Composite(throttlehttp.IP{}.Key, throttlehttp.Method, throttlehttp.Path)
	fmt.Println(perPage(httptest.NewRequest(http.MethodPost, "/login/?next=/", nil)))
	// Output:
	// join:12:ip:192.0.2.111:method:POST11:path:/login true
}

// With two proxies, everything to the left of the client's address is forged by the client.
func ExampleIP() {
	ip := throttlehttp.IP{Trusted: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/28"),    // addresses of the balancer
		netip.MustParsePrefix("203.0.113.0/24"), // addresses of the edge
	}}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.0.0.2:4711"
	for _, forwardedFor := range []string{
		"192.0.2.7, 203.0.113.9",
		"6.6.6.6, 192.0.2.7, 203.0.113.9",
		"2001:db8:1:2:3:4:5:6, 203.0.113.9",
		"192.0.2.7, unknown",
	} {
		r.Header.Set("X-Forwarded-For", forwardedFor)
		name, _ := ip.Key(r)
		fmt.Println(name)
	}
	// Output:
	// ip:192.0.2.7
	// ip:192.0.2.7
	// ip:2001:db8:1:2::/64
	// ip:10.0.0.2
}

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
