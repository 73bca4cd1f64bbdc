package main

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// An api serves all it is asked for, but pauses for a second after 15 requests.
type api struct {
	served, refused atomic.Int64

	mu    sync.Mutex
	until time.Time
}

func (a *api) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.served.Load() == 15 && a.until.IsZero() {
		a.until = time.Now().Add(time.Second)
	}
	if time.Now().Before(a.until) {
		a.refused.Add(1)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	a.served.Add(1)
}

// startRedis returns the URL of a Redis: that of REDIS_URL, or a redis-server of our
// own, or where none is installed one in memory, which cannot run all scripts.
func startRedis() (url string, stop func()) {
	if url = os.Getenv("REDIS_URL"); url != "" {
		return url, func() {}
	}
	dir, err := os.MkdirTemp("", "workers")
	check(err)
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if cmd.Start() != nil {
		mini, err := miniredis.Run()
		check(err)
		return "redis://" + mini.Addr(), func() { mini.Close(); os.RemoveAll(dir) }
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
	defer client.Close()
	err = client.Ping(context.Background()).Err()
	for range 500 {
		if err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
		err = client.Ping(context.Background()).Err()
	}
	check(err)
	return "unix://" + socket, func() { cmd.Process.Kill(); cmd.Wait(); os.RemoveAll(dir) }
}
