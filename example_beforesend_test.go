package heed_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
)

// Each attempt is signed when it is sent, so that a signature does not expire while the
// request waits for a limit or for its retry.
func ExampleRetryPolicy_beforeSend() {
	secret := []byte("secret")
	sign := func(path, attempt string) string {
		h := hmac.New(sha256.New, secret)
		io.WriteString(h, path+"\n"+attempt)
		return hex.EncodeToString(h.Sum(nil))
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		attempt := r.Header.Get("X-Attempt")
		fmt.Println("attempt", attempt, "signed:", r.Header.Get("X-Signature") == sign(r.URL.Path, attempt))
		if attempt == "1" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()

	client := heed.NewClient(&heed.Transport{Retry: &heed.RetryPolicy{
		Backoff: backoff.Constant(0),
		BeforeSend: func(req *http.Request, attempt int) error {
			req.Header.Set("X-Attempt", strconv.Itoa(attempt))
			req.Header.Set("X-Signature", sign(req.URL.Path, strconv.Itoa(attempt)))
			return nil
		},
	}})
	resp, err := client.Get(server.URL + "/items/1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode)
	// Output:
	// attempt 1 signed: true
	// attempt 2 signed: true
	// 200
}
