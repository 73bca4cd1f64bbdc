// Package redistest runs real Redis servers for tests and measurements: single
// ones that can be killed and started again, a cluster, and a proxy between
// client and server that has faults.
//
// All of it ends with the test. What has to be waited for is waited for by
// condition, with a limit that only a machine that has stopped exceeds.
package redistest

import (
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"time"
)

// T is what the package needs of a testing.T, so that programs can use it, too.
type T interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// waitTimeout is how long anything may take before it counts as broken.
const waitTimeout = time.Minute

// Await returns when condition holds, and fails the test if that takes a minute.
func Await(t T, what string, condition func() bool) {
	t.Helper()
	for start := time.Now(); !condition(); {
		if time.Since(start) > waitTimeout {
			t.Fatalf("redistest: waited a minute for this: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// The ports that are given out lie below those that systems give to outgoing
// connections (Linux from 32768, others from 49152), and so do the ports 10,000
// further up, at which nodes of a cluster speak to each other. Another port looks
// free while its server is down, but may be a client's by the time it comes back.
const firstPort, ports, busOffset = 10_000, 10_000, 10_000

// host is an address of loopback that no other process listens at, where there is
// more than one: nobody can take the port of a server that is down.
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

// freePort returns a port of host that was not given out before, and that nobody
// listens at, nor at its bus port.
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
