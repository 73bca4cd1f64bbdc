package quota_test

import (
	"net/http"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/fleet"
)

// Two Trackers share what servers state, as those of two processes do: the rejections of one
// hold both. A LocalBus connects them in memory; package throttleredis connects processes.
func ExampleExchange() {
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	bus := &fleet.LocalBus{Clock: clk}
	var clients []*http.Client
	for range 2 {
		tracker := &quota.Tracker{
			Exchange: &fleet.Exchange{Bus: bus, Secret: []byte("the same in all processes"), Clock: clk},
			Clock:    clk,
		}
		defer tracker.Close()
		clients = append(clients, heed.NewClient(&heed.Transport{
			Base:  respond(http.StatusTooManyRequests, "Retry-After", "30"),
			Clock: clk,
			Quota: tracker,
		}))
	}
	for range 5 {
		send(clients[0], "https://api.example.com/")
	}
	send(clients[1], "https://api.example.com/")
	// Output:
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// not sent: api.example.com: retry-after
}
