package redistest

import (
	"net"
	"sync"
	"time"
)

// A Fault is what is wrong with the way between client and server.
type Fault int

const (
	Pass      Fault = iota // nothing
	Slow                   // each answer comes Latency later
	Reset                  // connections are accepted and reset at once
	BlackHole              // connections are accepted and nothing comes through
	NoReplies              // what is asked comes through, and is done, but no answer comes back
	Refuse                 // connections are refused
)

// A Proxy stands between clients and a server. At first it lets all through.
type Proxy struct {
	Addr    string        // host:port, for clients
	Latency time.Duration // of Slow; 0: 200 ms. It must not change while the fault is Slow

	t  T
	wg sync.WaitGroup

	mu       sync.Mutex
	target   string
	fault    Fault
	listener net.Listener // nil: refuses
	conns    map[*net.TCPConn]struct{}
	closed   bool
}

// StartProxy stands in front of the server at target until the test ends.
func StartProxy(t T, target string) *Proxy {
	t.Helper()
	p := &Proxy{t: t, target: target, conns: map[*net.TCPConn]struct{}{}}
	for range 20 {
		p.Addr = address(freePort())
		if p.listen() == nil {
			t.Cleanup(p.close)
			return p
		}
	}
	t.Fatalf("redistest: found no free port in 20 attempts")
	return nil
}

// Set has the fault from now on. Connections that there are have it too: they are
// closed with a reset, but for those that only get slow, or fall silent.
func (p *Proxy) Set(f Fault) {
	p.t.Helper()
	p.mu.Lock()
	before := p.fault
	p.fault = f
	if before > Slow || f == Reset || f == Refuse {
		p.reset()
	}
	if f == Refuse {
		p.refuse()
	}
	listens := p.listener != nil
	p.mu.Unlock()
	if f != Refuse && !listens {
		Await(p.t, "the port of the proxy", func() bool { return p.listen() == nil })
	}
}

// Retarget has the server at target answer from now on. Connections to the one before are
// reset.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	p.reset()
}

// listen accepts connections at p.Addr from now on.
func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.Addr)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.listener = l
	p.mu.Unlock()
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(conn.(*net.TCPConn)) })
		}
	})
	return nil
}

// serve connects client with the server until one of them leaves.
func (p *Proxy) serve(client *net.TCPConn) {
	if !p.add(client) {
		return
	}
	defer p.remove(client)
	_, target := p.current()
	upstream, err := net.Dial("tcp", target)
	if err != nil {
		resetConn(client)
		return
	}
	server := upstream.(*net.TCPConn)
	if !p.add(server) {
		return
	}
	defer p.remove(server)
	p.wg.Go(func() { p.forward(client, server, false) })
	p.forward(server, client, true)
}

// forward copies what comes from one side to the other, as far as the fault lets it.
func (p *Proxy) forward(from, to *net.TCPConn, replies bool) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		f, _ := p.current()
		if f == Slow && replies {
			<-time.After(p.latency())
			f, _ = p.current()
		}
		if f == BlackHole || f == NoReplies && replies {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) latency() time.Duration {
	if p.Latency == 0 {
		return 200 * time.Millisecond
	}
	return p.Latency
}

func (p *Proxy) current() (f Fault, target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.target
}

// add counts conn as one of p's, unless the fault is that there are none.
func (p *Proxy) add(conn *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.fault == Reset || p.fault == Refuse {
		resetConn(conn)
		return false
	}
	p.conns[conn] = struct{}{}
	return true
}

func (p *Proxy) remove(conn *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	_ = conn.Close()
}

// reset resets all connections. p.mu must be held.
func (p *Proxy) reset() {
	for conn := range p.conns {
		resetConn(conn)
	}
}

// refuse stops listening. p.mu must be held.
func (p *Proxy) refuse() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// close ends the proxy, and returns when nothing of it is left.
func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.refuse()
	p.reset()
	p.mu.Unlock()
	p.wg.Wait()
}

// resetConn closes conn without a word of farewell: the other side reads a reset.
func resetConn(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
