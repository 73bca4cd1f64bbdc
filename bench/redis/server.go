package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// A server is a redis-server started by this program, on a loopback address, that stores
// nothing on disk.
type server struct {
	addr string
	dir  string
	cmd  *exec.Cmd
}

// startServer runs the first redis-server on the PATH until stop is called.
func startServer() (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{addr: l.Addr().String()}
	_, port, _ := net.SplitHostPort(s.addr)
	if err = errors.Join(l.Close(), s.makeDir()); err != nil {
		return nil, err
	}
	s.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--unixsocket", s.socket(), "--dir", s.dir, "--save", "", "--appendonly", "no")
	if err = s.cmd.Start(); err != nil {
		return nil, err
	}
	c := s.client()
	defer c.Close()
	for range 1000 {
		if err = c.Ping(context.Background()).Err(); err == nil {
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("redis: the server at %s does not answer: %w", s.addr, err)
}

// startServers starts n servers.
func startServers(n int) (all []*server, err error) {
	for range n {
		s, err := startServer()
		if err != nil {
			stop(all)
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func stop(all []*server) {
	for _, s := range all {
		s.stop()
	}
}

func (s *server) makeDir() (err error) {
	s.dir, err = os.MkdirTemp("", "heed-bench")
	return err
}

// stop ends the server. It may be called twice.
func (s *server) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

func (s *server) socket() string { return filepath.Join(s.dir, "redis.sock") }

// client returns a client with enough connections for 64 goroutines.
func (s *server) client() *redis.Client { return connect("tcp", s.addr) }

func connect(network, addr string) *redis.Client {
	return redis.NewClient(&redis.Options{
		Network: network, Addr: addr, PoolSize: 64, MaxRetries: -1,
		ReadTimeout: time.Minute, PoolTimeout: time.Minute,
	})
}
