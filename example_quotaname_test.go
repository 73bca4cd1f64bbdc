package heed_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/heed-go/heed"
)

// The model of a request is in its body, and each model has a quota of its own. A rejection
// of one model holds no request to another one.
func ExampleRequestOptions_quotaName() {
	client := heed.NewClient(&heed.Transport{Base: models{}}) // simulates the server; leave it out in a program
	for _, model := range []string{"large", "small", "large"} {
		ctx := heed.WithOptions(context.Background(), heed.RequestOptions{QuotaName: model, NoWait: true})
		body := strings.NewReader(`{"model":"` + model + `"}`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.example.com/v1/chat", body)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(model, "must wait")
			continue
		}
		resp.Body.Close()
		fmt.Println(model, resp.StatusCode)
	}
	// Output:
	// large 429
	// small 200
	// large must wait
}

// models is a server that rejects requests to the large model for a minute.
type models struct{}

func (models) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}
	if strings.Contains(string(body), "large") {
		resp.StatusCode = http.StatusTooManyRequests
		resp.Header.Set("Retry-After", "60")
	}
	return resp, nil
}
