// Package workers ships orders in several processes that share one account of an API.
package workers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/fleet"
)

// NewClient returns the client of one process, and a function that ends its use of the bus.
// When the API rejects a request of one process, all processes with the same bus and secret
// wait. Over Redis, use a throttleredis.Exchange instead. Nil as base means
// http.DefaultTransport.
func NewClient(base http.RoundTripper, bus fleet.Bus, secret []byte) (client *http.Client, stop func()) {
	tracker := &quota.Tracker{Exchange: &fleet.Exchange{Bus: bus, Secret: secret}}
	return heed.NewClient(&heed.Transport{Base: base, Quota: tracker}), tracker.Close
}

// Work packs and ships orders with a number of goroutines until there are none left. It
// returns how many failed.
func Work(ctx context.Context, client *http.Client, goroutines int, orders <-chan int, pack func(order int)) (failed int) {
	var n atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for order := range orders {
				pack(order)
				if err := ship(ctx, client, order); err != nil {
					n.Add(1)
				}
			}
		})
	}
	all.Wait()
	return int(n.Load())
}

// ship orders the shipment of an order. The API creates one shipment for each key.
func ship(ctx context.Context, client *http.Client, order int) error {
	url := fmt.Sprintf("https://api.shipping.example/v1/shipments?order=%d", order)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer account-1")
	req.Header.Set("Idempotency-Key", fmt.Sprintf("ship-order-%d", order))
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("order %d: %s", order, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
