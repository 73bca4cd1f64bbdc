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
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

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
		h := new(memoryExchange)
		for range n {
			w.all = append(w.all, h)
		}
		w.messages = h.published.Load
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
		exchange := &throttleredis.Exchange{Client: redis.NewClient(opts), Prefix: prefix}
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

// A memoryExchange delivers updates within this process and stores none.
type memoryExchange struct {
	published   atomic.Int64
	mu          sync.Mutex
	subscribers []func(quota.Update)
}

const exchangeDelay = time.Millisecond

func (h *memoryExchange) Publish(m quota.Update) {
	h.published.Add(1)
	h.mu.Lock()
	subscribers := h.subscribers
	h.mu.Unlock()
	time.AfterFunc(exchangeDelay, func() {
		for _, f := range subscribers {
			f(m)
		}
	})
}

func (h *memoryExchange) Subscribe(_ context.Context, f func(quota.Update)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribers = append(h.subscribers[:len(h.subscribers):len(h.subscribers)], f)
}

func (h *memoryExchange) Fetch(account string) { h.Publish(quota.Update{Account: account}) }

// isHeld reports whether a tracker holds all requests because of a rejection.
func isHeld(tr *quota.Tracker, req *http.Request) bool {
	m := tr.Demand(req)
	if m.Limiter == nil {
		return false
	}
	d, err := m.Limiter.Reserve(req.Context(), throttle.Claim{DryRun: true})
	return err == nil && !d.OK && strings.HasSuffix(d.Policy, ": retry-after")
}
