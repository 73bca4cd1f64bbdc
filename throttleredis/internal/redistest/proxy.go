package redistest

import (
	"net"
	"slices"
	"sync"
	"time"
)

// A Fault is a fault of the network between client and server.
type Fault int

const (
	Pass      Fault = iota // no fault
	Slow                   // responses are delayed by Latency
	Reset                  // connections are accepted and reset immediately
	BlackHole              // connections are accepted and no data is forwarded
	NoReplies              // commands are forwarded and executed, but responses are not forwarded
	Refuse                 // connections are refused
)

// A Proxy forwards connections of clients to a server. It begins without a fault.
type Proxy struct {
	// Addr is host:port, for clients.
	Addr string

	// Latency is the delay of Slow. It must not be changed while the fault is Slow. Zero
	// means 200 ms.
	Latency time.Duration

	t  T
	wg sync.WaitGroup

	mu       sync.Mutex
	target   string
	fault    Fault
	listener net.Listener // nil: connections are refused
	conns    map[*net.TCPConn]struct{}
	closed   bool
}

// StartProxy starts a proxy for the server at target, which runs until the test ends.
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

// Set changes the fault. It also applies to open connections: they are reset, except that
// Slow, BlackHole and NoReplies affect them without a reset if the previous fault was Pass
// or Slow.
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

// Retarget changes the address of the server and resets all connections.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	p.reset()
}

// listen starts to accept connections at p.Addr.
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

// serve connects client with the server until either side closes its connection.
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

// forward copies data from one side to the other, unless the fault prevents it.
func (p *Proxy) forward(from, to *net.TCPConn, replies bool) {
	defer to.Close()
	var late *delayLine // nil: nothing was delayed
	defer func() { late.close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if f, _ := p.current(); f == Slow && replies && late == nil {
			late = p.newDelayLine(to)
		}
		if late != nil {
			late.add(buf[:n])
		} else if !p.write(to, buf[:n], replies) {
			return
		}
	}
}

// write writes data, unless the fault prevents it. It returns false if the connection has
// ended.
func (p *Proxy) write(to *net.TCPConn, data []byte, replies bool) bool {
	if f, _ := p.current(); f == BlackHole || f == NoReplies && replies {
		return true
	}
	_, err := to.Write(data)
	return err == nil
}

// A delayLine writes responses later, while the fault is Slow, and in order. It does not limit
// the throughput.
type delayLine struct {
	proxy  *Proxy
	chunks chan chunk
	ended  chan struct{}
}

// A chunk is data that is written when it is due.
type chunk struct {
	data []byte
	due  time.Time
}

// maxChunks is the maximum number of chunks of a connection that wait until they are due.
const maxChunks = 4096

func (p *Proxy) newDelayLine(to *net.TCPConn) *delayLine {
	l := &delayLine{p, make(chan chunk, maxChunks), make(chan struct{})}
	p.wg.Go(func() {
		defer close(l.ended)
		for c := range l.chunks {
			if d := time.Until(c.due); d > 0 {
				<-time.After(d)
			}
			if !p.write(to, c.data, true) {
				_ = to.Close() // further writes fail, too
			}
		}
	})
	return l
}

// add adds data, which is due after the latency if the fault is Slow.
func (l *delayLine) add(data []byte) {
	c := chunk{data: slices.Clone(data)}
	if f, _ := l.proxy.current(); f == Slow {
		c.due = time.Now().Add(l.proxy.latency())
	}
	l.chunks <- c
}

// close returns when everything is written. A nil delayLine has nothing to write.
func (l *delayLine) close() {
	if l != nil {
		close(l.chunks)
		<-l.ended
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

// add registers conn. If the fault does not allow connections, or p is closed, it resets
// conn and returns false.
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

// close stops the proxy and waits for its goroutines.
func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.refuse()
	p.reset()
	p.mu.Unlock()
	p.wg.Wait()
}

// resetConn closes conn with a TCP reset.
func resetConn(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	_ = conn.Close()
}
