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
