package headers_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/headers"
)

// GitHub states the reset as Unix time. The response's Date is used, so a local clock that is
// wrong does not matter.
func ExampleReader_Parse() {
	h := http.Header{}
	h.Set("Date", "Sat, 21 Nov 2026 12:00:00 GMT")
	h.Set("X-RateLimit-Limit", "5000")
	h.Set("X-RateLimit-Remaining", "4987")
	h.Set("X-RateLimit-Reset", fmt.Sprint(time.Date(2026, 11, 21, 12, 42, 0, 0, time.UTC).Unix()))
	h.Set("X-RateLimit-Resource", "core")

	var reader headers.Reader
	r := reader.Parse("api.github.com", http.StatusOK, h, time.Now())
	for _, l := range r.Limits {
		fmt.Printf("%s: %d of %d left, reset in %v\n", l.Name, l.Remaining, l.Limit, l.ResetAfter)
	}
	// Output:
	// core: 4987 of 5000 left, reset in 42m0s
}

// A Provider describes headers of an API that the general rules cannot interpret.
func ExampleReader_hosts() {
	reader := headers.Reader{Hosts: map[string]headers.Provider{
		"api.example.com": {
			Name: "example",
			Headers: map[string]headers.Rule{
				"X-Calls-Left":  {Kind: headers.KindRemaining},
				"X-Calls-Renew": {Kind: headers.KindResetAfter, Scale: time.Millisecond},
			},
		},
	}}
	h := http.Header{}
	h.Set("X-Calls-Left", "3")
	h.Set("X-Calls-Renew", "1500")

	r := reader.Parse("api.example.com", http.StatusOK, h, time.Now())
	for _, l := range r.Limits {
		fmt.Printf("%d left, reset in %v\n", l.Remaining, l.ResetAfter)
	}
	// Output:
	// 3 left, reset in 1.5s
}

// Some APIs state the end of a rejection in the body only.
func ExampleReader_ReadBody() {
	var reader headers.Reader
	h := http.Header{"Content-Type": {"application/json"}}
	r := reader.Parse("api.example.com", http.StatusTooManyRequests, h, time.Now())
	fmt.Println(r.Stated, r.Wait)

	reader.ReadBody(http.StatusTooManyRequests, h, []byte(`{"message": "You are being rate limited.", "retry_after": 1.5}`), &r)
	fmt.Println(r.Stated, r.Wait)
	// Output:
	// not stated 0s
	// wait 1.5s
}
