// Package server provides a Redis for the examples.
package server

import (
	"context"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Start returns the URL of a Redis: that in REDIS_URL, or that of a redis-server that it
// starts, or, if none is installed, that of a server in memory, which cannot run the
// scripts of limits.
func Start() (url string, stop func()) {
	if url = os.Getenv("REDIS_URL"); url != "" {
		return url, func() {}
	}
	dir, err := os.MkdirTemp("", "heed")
	check(err)
	socket := filepath.Join(dir, "redis.sock")
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if cmd.Start() != nil {
		log.Print("redis-server is not installed, and REDIS_URL is not set: each process decides alone")
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
	return "unix://" + socket, func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); os.RemoveAll(dir) }
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
