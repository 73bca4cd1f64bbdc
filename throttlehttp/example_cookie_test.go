package throttlehttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/heed-go/heed/throttlehttp"
)

// Requests with the same session cookie have the same key, which is a hash of the cookie.
// Requests without the cookie count by address.
func ExampleCookie() {
	clientKey := throttlehttp.FirstOf(throttlehttp.Cookie("session"), throttlehttp.IP{}.Key)
	keyOf := func(session string) string {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		if session != "" {
			r.AddCookie(&http.Cookie{Name: "session", Value: session})
		}
		key, _ := clientKey(r)
		return key
	}
	first := keyOf("5e551011")
	fmt.Println(keyOf("5e551011") == first, keyOf("5e551012") == first)
	fmt.Println(keyOf(""))
	// Output:
	// true false
	// ip:192.0.2.1
}

// Clients can make up cookies, and so get a new key with each request. With Validate, only
// cookies of known sessions are keys; requests with others count by address.
func ExampleSecrets_Cookie() {
	sessions := &throttlehttp.Secrets{
		Key:      []byte("32 random bytes, in a real program"),
		Validate: func(id string) bool { return id == "5e551011" },
	}
	clientKey := throttlehttp.FirstOf(sessions.Cookie("session"), throttlehttp.IP{}.Key)
	for _, id := range []string{"5e551011", "made-up"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.AddCookie(&http.Cookie{Name: "session", Value: id})
		key, _ := clientKey(r)
		fmt.Println(key)
	}
	// Output:
	// cookie.session=ee3d390bb00b9ceede151ecdce37f7a5
	// ip:192.0.2.1
}
