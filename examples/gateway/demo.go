package main

import (
	"crypto/sha256"
	_ "embed"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed limits.yaml
var limits string

// A demo is two APIs, two copies of the gateway, and the Redis that the copies share.
type demo struct {
	stopRedis func()
	file      string
	reloaded  chan error
	copies    [2]*httptest.Server
	close     func()
}

// build starts all parts of the demo. If Redis does not respond within timeout, the gateway
// decides without it. Zero means 50 ms.
func build(timeout time.Duration) (*demo, error) {
	t := &demo{reloaded: make(chan error, 16)}
	dir, err := os.MkdirTemp("", "gateway")
	if err != nil {
		return nil, err
	}
	server, stop, err := startRedis(dir)
	if err != nil {
		return nil, err
	}
	t.stopRedis = stop
	t.file = filepath.Join(dir, "limits.yaml")
	if err := os.WriteFile(t.file, []byte(limits), 0o600); err != nil {
		return nil, err
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "done") }))
	to, err := url.Parse(api.URL)
	if err != nil {
		return nil, err
	}
	known := new(clients)
	known.set("hasty", "polite", "buyer", "mailer", "somebody")
	closers := []func(){stop, api.Close, func() { os.RemoveAll(dir) }}
	for i := range t.copies {
		client := redis.NewClient(withoutRetries(&redis.Options{Network: server.Network, Addr: server.Addr}))
		o := newOperations()
		g, err := newGateway(gatewayConfig{
			file: t.file, users: to, orders: to, clients: known, operations: o,
			build: redisBuilder(client, len(t.copies), timeout, o.metrics), onReload: func(err error) { t.reloaded <- err },
		})
		if err != nil {
			return nil, err
		}
		t.copies[i] = httptest.NewServer(g)
		closers = append(closers, t.copies[i].Close, func() { g.close() }, func() { client.Close() })
	}
	t.close = func() {
		for i := range closers {
			closers[len(closers)-1-i]()
		}
	}
	return t, nil
}

// set makes each name a client whose token is its name, for the demonstration.
func (c *clients) set(names ...string) {
	all := map[[sha256.Size]byte]client{}
	for _, name := range names {
		all[sha256.Sum256([]byte(name))] = client{name: name, mayAllow: name == "mailer"}
	}
	c.of.Store(&all)
}

// rewrite changes the file, and waits until both copies have loaded it.
func (t *demo) rewrite(old, new string) error {
	if err := os.WriteFile(t.file+".new", []byte(strings.Replace(limits, old, new, 1)), 0o600); err != nil {
		return err
	}
	if err := os.Rename(t.file+".new", t.file); err != nil {
		return err
	}
	for range t.copies {
		if err := <-t.reloaded; err != nil {
			return err
		}
	}
	return nil
}

// callParallel makes n calls from ten goroutines, alternating between the copies.
func (t *demo) callParallel(c *http.Client, token string, n int) (ok, rejected int) {
	calls := make(chan int, n)
	for i := range n {
		calls <- i
	}
	close(calls)
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for i := range calls {
				status, _ := t.requestWith(c, i, http.MethodGet, "/users/", token)
				mu.Lock()
				if status == http.StatusOK {
					ok++
				} else {
					rejected++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return ok, rejected
}

func (t *demo) request(i int, method, path, token string) (status int, body string) {
	return t.requestWith(http.DefaultClient, i, method, path, token)
}

func (t *demo) requestWith(c *http.Client, i int, method, path, token string) (status int, body string) {
	req, err := http.NewRequest(method, t.copies[i%len(t.copies)].URL+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Accept", "text/plain")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, strings.TrimSpace(string(text))
}
