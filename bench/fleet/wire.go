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

// wires are what the processes share by.
type wires struct {
	all      []quota.Share // nil: they do not
	messages func() int64
	close    func()
}

func (w *wires) of(i int) quota.Share {
	if w.all == nil {
		return nil
	}
	return w.all[i]
}

func wire(share string, n int) (*wires, error) {
	w := &wires{messages: func() int64 { return 0 }, close: func() {}}
	switch {
	case share == "none":
		return w, nil
	case share == "memory":
		h := new(hub)
		for range n {
			w.all = append(w.all, h)
		}
		w.messages = h.posted.Load
		return w, nil
	}
	return w, w.redis(share, n)
}

// redis gives each process a client of its own.
func (w *wires) redis(url string, n int) error {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return fmt.Errorf("fleet: share %q: take none, memory or the URL of a Redis: %w", url, err)
	}
	opts.ContextTimeoutEnabled = true
	var tolds []*throttleredis.Told
	prefix := fmt.Sprint("fleet", time.Now().UnixNano())
	for range n {
		told := &throttleredis.Told{Client: redis.NewClient(opts), Prefix: prefix}
		tolds, w.all = append(tolds, told), append(w.all, told)
	}
	w.messages = func() (sum int64) {
		for _, t := range tolds {
			sum += int64(t.Stats().Posted)
		}
		return sum
	}
	w.close = func() {
		for _, t := range tolds {
			t.Close(context.Background())
		}
	}
	return nil
}

// A hub is a bus of this process, with nothing kept.
type hub struct {
	posted  atomic.Int64
	mu      sync.Mutex
	hearers []func(quota.Message)
}

const hubDelay = time.Millisecond

func (h *hub) Post(m quota.Message) {
	h.posted.Add(1)
	h.mu.Lock()
	hearers := h.hearers
	h.mu.Unlock()
	time.AfterFunc(hubDelay, func() {
		for _, hear := range hearers {
			hear(m)
		}
	})
}

func (h *hub) Listen(hear func(quota.Message)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hearers = append(h.hearers[:len(h.hearers):len(h.hearers)], hear)
}

func (h *hub) Recall(account string) { h.Post(quota.Message{Account: account}) }

// isShut reports whether a tracker lets nothing go as the server said stop.
func isShut(tr *quota.Tracker, req *http.Request) bool {
	m := tr.Demand(req)
	if m.Limiter == nil {
		return false
	}
	d, err := m.Limiter.Reserve(req.Context(), throttle.Claim{DryRun: true})
	return err == nil && !d.OK && strings.HasSuffix(d.Policy, ": retry-after")
}
