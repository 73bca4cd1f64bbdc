// Package redistest runs real Redis servers for tests and measurements: single servers that
// can be killed and restarted, a cluster, and a proxy between client and server that
// simulates faults.
//
// Servers and proxies end with the test. The package waits for conditions, never for a
// fixed time, and fails the test after one minute.
package redistest

import (
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// T is the part of testing.T that the package needs, so that programs can use the package
// as well.
type T interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// waitTimeout is the time after which a condition counts as failed.
const waitTimeout = time.Minute

// Await waits until condition holds. It fails the test after one minute.
func Await(t T, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); {
		if time.Since(start) > waitTimeout {
			t.Fatalf("redistest: waited a minute for this: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// firstPort and ports describe the range of ports for servers. It lies below the ports that
// systems use for outgoing connections (Linux from 32768, others from 49152), and so do the
// cluster bus ports, which are higher by busOffset. A port of the ephemeral range is free
// while its server is down, but a client may use it when the server is restarted.
const firstPort, ports, busOffset = 10_000, 10_000, 10_000

// host is a loopback address on which no other process listens, on systems with more than
// one such address: no other process can use the port of a server that is down.
var host = func() string {
	pid := os.Getpid()
	own := net.IPv4(127, byte(1+pid>>16&0x7f), byte(pid>>8), byte(pid)).String()
	if l, err := net.Listen("tcp", net.JoinHostPort(own, "0")); err == nil {
		_ = l.Close()
		return own
	}
	return "127.0.0.1"
}()

var usedPorts = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePort returns a port of host that was not returned before, such that no process
// listens on it or on its bus port.
func freePort() string {
	usedPorts.Lock()
	defer usedPorts.Unlock()
	for {
		port := firstPort + rand.IntN(ports)
		if !usedPorts.ports[port] && isFree(port) && isFree(port+busOffset) {
			usedPorts.ports[port] = true
			return strconv.Itoa(port)
		}
	}
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", address(strconv.Itoa(port)))
	return err == nil && l.Close() == nil
}

func address(port string) string { return net.JoinHostPort(host, port) }
