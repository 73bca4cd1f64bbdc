package quota_test

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
)

// Two Trackers share what servers state, as those of two processes do: the rejection of one
// holds both. This Exchange is in memory; package throttleredis has one for several processes.
func ExampleExchange() {
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
	exchange := &memoryExchange{}
	var clients []*http.Client
	for range 2 {
		tracker := &quota.Tracker{
			Exchange: exchange,
			Secret:   []byte("the same in all processes"),
			Clock:    clk,
		}
		defer tracker.Close()
		clients = append(clients, heed.NewClient(&heed.Transport{
			Base:  respond(http.StatusTooManyRequests, "Retry-After", "30"),
			Clock: clk,
			Quota: tracker,
		}))
	}
	send(clients[0], "https://api.example.com/")
	send(clients[1], "https://api.example.com/")
	// Output:
	// sent: 429
	// not sent: api.example.com: retry-after, for 30s
}

// A memoryExchange connects the Trackers of one process.
type memoryExchange struct {
	mu        sync.Mutex
	receivers []func(quota.Update)
	kept      []quota.Update
}

// Publish passes u to all subscribers.
func (e *memoryExchange) Publish(u quota.Update) {
	e.mu.Lock()
	if u.Keep > 0 {
		e.kept = append(e.kept, u)
	}
	receivers := e.receivers
	e.mu.Unlock()
	for _, receive := range receivers {
		receive(u)
	}
}

// Subscribe adds a subscriber, which stays until the program ends.
func (e *memoryExchange) Subscribe(_ context.Context, receive func(quota.Update)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.receivers = append(e.receivers[:len(e.receivers):len(e.receivers)], receive)
}

// Fetch repeats the kept updates of account.
func (e *memoryExchange) Fetch(account string) {
	e.mu.Lock()
	var updates []quota.Update
	for _, u := range e.kept {
		if u.Account == account {
			updates = append(updates, u)
		}
	}
	receivers := e.receivers
	e.mu.Unlock()
	updates = append(updates, quota.Update{Account: account}) // the end of what is kept
	for _, receive := range receivers {
		for _, u := range updates {
			receive(u)
		}
	}
}
