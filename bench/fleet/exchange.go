package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/fleet"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

var secret = []byte("bench")

// exchanges are the exchanges through which the processes share updates.
type exchanges struct {
	all      []quota.Exchange // nil: the processes do not share
	messages func() int64
	close    func()
}

func (w *exchanges) exchange(i int) quota.Exchange {
	if w.all == nil {
		return nil
	}
	return w.all[i]
}

func newExchanges(share string, n int) (*exchanges, error) {
	w := &exchanges{messages: func() int64 { return 0 }, close: func() {}}
	switch {
	case share == "none":
		return w, nil
	case share == "memory":
		bus := new(memoryBus)
		for range n {
			w.all = append(w.all, &fleet.Exchange{Bus: bus, Secret: secret})
		}
		w.messages = bus.published.Load
		return w, nil
	}
	return w, w.redis(share, n)
}

// redis creates an Exchange with a separate client for each process.
func (w *exchanges) redis(url string, n int) error {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return fmt.Errorf("fleet: share %q: take none, memory or the URL of a Redis: %w", url, err)
	}
	opts.ContextTimeoutEnabled = true
	var all []*throttleredis.Exchange
	prefix := fmt.Sprint("fleet", time.Now().UnixNano())
	for range n {
		exchange := &throttleredis.Exchange{Client: redis.NewClient(opts), Prefix: prefix, Secret: secret}
		all, w.all = append(all, exchange), append(w.all, exchange)
	}
	w.messages = func() (sum int64) {
		for _, t := range all {
			sum += int64(t.Stats().Published)
		}
		return sum
	}
	w.close = func() {
		for _, t := range all {
			t.Close(context.Background())
		}
	}
	return nil
}

// A memoryBus delivers messages within this process after exchangeDelay, and stores none.
type memoryBus struct {
	published   atomic.Int64
	mu          sync.Mutex
	subscribers []func(fleet.Message)
}

const exchangeDelay = time.Millisecond

func (b *memoryBus) Publish(m fleet.Message) {
	b.published.Add(1)
	b.mu.Lock()
	subscribers := b.subscribers
	b.mu.Unlock()
	time.AfterFunc(exchangeDelay, func() {
		for _, f := range subscribers {
			f(m)
		}
	})
}

func (b *memoryBus) Subscribe(_ context.Context, f func(fleet.Message)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers = append(b.subscribers[:len(b.subscribers):len(b.subscribers)], f)
}

func (b *memoryBus) Fetch(account string) { b.Publish(fleet.Message{Account: account}) }

// isHeld reports whether a tracker holds all requests because of a rejection.
func isHeld(tr *quota.Tracker, req *http.Request) bool {
	m := tr.Demand(req)
	if m.Limiter == nil {
		return false
	}
	d, err := m.Limiter.Reserve(req.Context(), throttle.Claim{DryRun: true})
	return err == nil && !d.OK && strings.HasSuffix(d.Policy, ": retry-after")
}
