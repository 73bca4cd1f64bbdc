package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// startRedis starts a redis-server in dir that stores nothing on disk. If none is
// installed, it starts a server in memory, which cannot run the scripts of all limits:
// these limits then decide without Redis.
func startRedis(dir string) (*redis.Options, func(), error) {
	o := &redis.Options{Network: "unix", Addr: filepath.Join(dir, "redis.sock")}
	cmd := exec.Command("redis-server", "--port", "0", "--unixsocket", o.Addr, "--save", "", "--dir", dir)
	if cmd.Start() != nil {
		mini, err := miniredis.Run()
		if err != nil {
			return nil, nil, err
		}
		return &redis.Options{Network: "tcp", Addr: mini.Addr()}, mini.Close, nil
	}
	stop := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	client := redis.NewClient(o)
	defer client.Close()
	var err error
	for range 1000 {
		if err = client.Ping(context.Background()).Err(); err == nil {
			return o, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return nil, nil, fmt.Errorf("gateway: redis-server does not answer: %w", err)
}
