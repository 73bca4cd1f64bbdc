package heed_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
)

// The model of a request is in its body, and each model has a quota of its own. Five rejections of
// one model show that others would be rejected, too; they hold no request to another model.
func ExampleRequestOptions_quotaName() {
	client := heed.NewClient(&heed.Transport{
		Base:  models{}, // simulates the server; leave it out in a program
		Quota: &quota.Tracker{NeverTest: true},
	})
	for _, model := range []string{"large", "large", "large", "large", "large", "small", "large"} {
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
	// large 429
	// large 429
	// large 429
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
