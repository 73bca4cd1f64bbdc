package heed_test

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/stretchr/testify/require"
)

// These tests use servers of other projects. The client is not configured with their
// limits.

func TestTransport_finishesAgainstNginx(t *testing.T) {
	t.Parallel()
	finishes(t, new(heed.Transport), startServer(t, "nginx.conf", "nginx", "-p", ".", "-e", "stderr", "-c", "nginx.conf"), 0)
}

func TestTransport_finishesAgainstHAProxy(t *testing.T) {
	t.Parallel()
	// It states when to come back but no limit, and counts the requests that it rejects: only a rate that is learned keeps
	// below it. In StatedOnly (QUOTA section 5) some calls use up all their attempts: 5 were seen.
	for mode, allowed := range map[quota.Mode]int64{quota.StatedOnly: 30, quota.Full: 0} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			finishes(t, &heed.Transport{Quota: &quota.Tracker{Mode: mode}}, startServer(t, "haproxy.cfg", "haproxy", "-db", "-f", "haproxy.cfg"), allowed)
		})
	}
}

// finishes sends 300 requests, 150 with -short, from 30 goroutines with one client. No more than a number of them may fail.
func finishes(t *testing.T, transport *heed.Transport, url string, allowed int64) {
	const callers = 30
	calls := int64(300)
	if testing.Short() {
		calls = 150
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var next, sent, failed atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range callers {
		all.Go(func() {
			for next.Add(1) <= calls {
				attempts, status := roundTrip(client, url)
				sent.Add(attempts)
				if status != http.StatusOK {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	t.Logf("sent %d, throttled %d, failed %d, in %.1f s", sent.Load(), sent.Load()-calls, failed.Load(), time.Since(start).Seconds())
	require.LessOrEqual(t, failed.Load(), allowed, "calls failed")
}

// roundTrip returns the number of attempts of a request and the last status, which is 0
// if there was no response.
func roundTrip(client *http.Client, url string) (attempts int64, status int) {
	resp, err := client.Get(url)
	if err != nil {
		return 1, 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 1, 0
	}
	info, _ := heed.InfoFrom(resp)
	return int64(max(info.Attempts, 1)), resp.StatusCode
}

// startServer runs a program with a config from testdata until the test ends, and returns
// its URL. If the program is not installed, the test is skipped, except in CI.
func startServer(t *testing.T, config, program string, args ...string) (url string) {
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program) // on Debian, this folder is not in the PATH of users
	}
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("%s must be installed in CI: %v", program, err)
	} else if err != nil {
		t.Skipf("%s is not installed: %v", program, err)
	}
	dir, addr := t.TempDir(), freeAddr(t)
	text, err := os.ReadFile(filepath.Join("testdata", config))
	require.NoError(t, err)
	text = bytes.ReplaceAll(text, []byte("@ADDR@"), []byte(addr))
	require.NoError(t, os.WriteFile(filepath.Join(dir, config), text, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.html"), []byte("ok\n"), 0o644))

	cmd := exec.Command(path, args...)
	output := new(strings.Builder)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	awaitServer(t, addr, ended, output)
	return "http://" + addr + "/"
}

// freeAddr returns an address without a listener. If loopback has more than one address,
// it uses one of this process alone, so that no client of another test gets its port
// before the program listens.
func freeAddr(t *testing.T) string {
	pid := os.Getpid()
	own := net.IPv4(127, byte(1+pid>>16&0x7f), byte(pid>>8), byte(pid))
	l, err := net.Listen("tcp", net.JoinHostPort(own.String(), "0"))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// awaitServer waits until addr accepts connections. It fails with the output of the
// program if that ends first.
func awaitServer(t *testing.T, addr string, ended <-chan struct{}, output *strings.Builder) {
	for range 1500 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return
		}
		select {
		case <-ended:
			t.Fatalf("the server ended: %s", output)
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatal("the server does not listen at " + addr)
}
