package throttlehttp_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// The following tests use real proxies. nginx appends to the line that the client sent;
// HAProxy adds a line of its own.

func TestIP_behindNginx(t *testing.T) {
	url := startProxy(t, "nginx", "nginx.conf", "-p", ".", "-e", "stderr", "-c", "nginx.conf")
	requireForgeryIgnored(t, url, "X-Forwarded-For", "6.6.6.6", "127.0.0.9", `"6.6.6.6`, "6.6.6.6,", "unknown")
	requireForgeryIgnored(t, url+"forwarded", "Forwarded", "for=6.6.6.6", `for="6.6.6.6"`, "for=6.6.6.6;proto=https")
	requireForgeryIgnored(t, url+"real", "X-Real-IP", "6.6.6.6", "::1")
	require.Equal(t, "?", clientKeyBehind(t, url+"forwarded", "Forwarded", `for=6.6.6.6;by="`), "it does not look at what it puts it behind")
}

func TestIP_behindHAProxy(t *testing.T) {
	url := startProxy(t, "haproxy", "haproxy.cfg", "-db", "-f", "haproxy.cfg")
	requireForgeryIgnored(t, url, "X-Forwarded-For", "6.6.6.6", "127.0.0.9", `"6.6.6.6`, "6.6.6.6,", "unknown")
	requireForgeryIgnored(t, url, "Forwarded", "for=6.6.6.6", `for=6.6.6.6;by="`, `for=6.6.6.6;by="\`)
	requireForgeryIgnored(t, url, "X-Real-IP", "6.6.6.6", "::1")
}

// requireForgeryIgnored sends forged values of a header that the proxy sets, in one line and
// in three, and checks that they have no effect.
func requireForgeryIgnored(t *testing.T, url, header string, forged ...string) {
	t.Helper()
	require.Equal(t, "ip:127.0.0.1", clientKeyBehind(t, url, header), header)
	for _, f := range forged {
		require.Equal(t, "ip:127.0.0.1", clientKeyBehind(t, url, header, f), "%s: %s", header, f)
		require.Equal(t, "ip:127.0.0.1", clientKeyBehind(t, url, header, f, f, f), "%s: %s", header, f)
	}
}

// clientKeyBehind returns the key that the server behind a proxy computes from a header.
func clientKeyBehind(t *testing.T, url, header string, lines ...string) string {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	r.Header[http.CanonicalHeaderKey(header)] = lines
	r.Header.Set("Believe", header)
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

// startProxy runs a proxy in front of a server at a Unix socket, which responds with the key
// of the client, and returns the URL of the proxy.
func startProxy(t *testing.T, program, config string, args ...string) (url string) {
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + program) // not in the PATH of users on Debian
	}
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("%s must be installed in CI: %v", program, err)
	} else if err != nil {
		t.Skipf("%s is not installed: %v", program, err)
	}
	dir, err := os.MkdirTemp("", "heed") // the path must be short enough for a socket
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, addr := filepath.Join(dir, "app.sock"), freeAddr(t)
	serveUnix(t, socket)
	text, err := os.ReadFile(filepath.Join("testdata", config))
	require.NoError(t, err)
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("@SOCKET@"), []byte(socket)), []byte("@ADDR@"), []byte(addr))
	require.NoError(t, os.WriteFile(filepath.Join(dir, config), text, 0o600))
	run(t, dir, addr, path, args...)
	return "http://" + addr + "/"
}

// serveUnix serves requests at a Unix socket with the key of the client.
func serveUnix(t *testing.T, socket string) {
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, key(throttlehttp.IP{TrustUnix: true, Header: r.Header.Get("Believe")}.Key, r))
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}

// run runs a program until the test ends, and returns when the program listens.
func run(t *testing.T, dir, addr, path string, args ...string) {
	cmd, output := exec.Command(path, args...), new(bytes.Buffer)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, output, output
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
	})
	for range 1500 {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return
		}
		select {
		case <-ended:
			t.Fatalf("%s ended: %s", path, output)
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatal(path + " does not listen at " + addr)
}

// freeAddr returns a free address. If there is more than one loopback address, it uses one
// that depends on the process id, so that no client in another process gets its port before
// the program listens.
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
