package heedtest_test

import (
	"net/http"
	"testing"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
)

// Check is called by a test. The base connects to the servers of the checks; in the program
// it would be an http.Transport.
func ExampleCheck() {
	testClient := func(t *testing.T) {
		heedtest.Check(t, func(base http.RoundTripper) http.RoundTripper {
			return &heed.Transport{Base: base} // the client under test is built here
		}, heedtest.Waiver{Check: "herd", Reason: "only one call runs at a time"})
	}
	_ = testClient // TestClient in a program
}

// Run returns the marks instead of failing the test.
func ExampleRun() {
	testCard := func(t *testing.T) {
		card := heedtest.Run(t, func(base http.RoundTripper) http.RoundTripper { return base }, "early-retry", "dialects")
		for _, m := range card.Failed() {
			t.Log(m) // dialects: failed: 20 rejected, limit 0: RateLimit: 20 requests of 30 calls were rejected although each response stated what remains
		}
	}
	_ = testCard
}
