package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"

	"github.com/heed-go/heed"
)

// An api responds to every request immediately.
type api struct{}

func (api) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func (c callGroup) callAll(client *http.Client) {
	var all sync.WaitGroup
	for range c.calls {
		all.Go(func() {
			if err := c.call(client); err != nil {
				fmt.Fprintln(os.Stderr, c.name+":", err)
			}
		})
	}
	all.Wait()
}

func (c callGroup) call(client *http.Client) error {
	ctx := heed.WithOptions(context.Background(), heed.RequestOptions{Priority: c.priority})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example.com"+c.path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Customer", c.customer)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
