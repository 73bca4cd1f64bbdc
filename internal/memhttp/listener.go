package memhttp

import (
	"context"
	"net"
	"sync"
)

// A Listener accepts connections made by its Dial method.
type Listener struct {
	incoming chan *Conn
	closed   chan struct{}
	once     sync.Once

	mu    sync.Mutex
	conns map[*Conn]struct{} // server ends that are open
	port  int                // of the latest client
}

// serverAddr is the address of every Listener.
var serverAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80}

// NewListener returns a Listener.
func NewListener() *Listener {
	return &Listener{
		incoming: make(chan *Conn),
		closed:   make(chan struct{}),
		conns:    map[*Conn]struct{}{},
		port:     49151, // the last port before the ephemeral ports
	}
}

// Dial connects to l. It returns when the connection is accepted.
func (l *Listener) Dial(ctx context.Context) (*Conn, error) {
	client, server := l.pair()
	select {
	case l.incoming <- server:
		return client, nil
	case <-l.closed:
	case <-ctx.Done():
	}
	server.Close()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, opError("dial", net.ErrClosed)
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, opError("accept", net.ErrClosed)
	}
}

// Close implements net.Listener. Connections remain open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return serverAddr }

// pair returns the ends of a new connection. Its client has a unique port, so that a server
// can distinguish connections by RemoteAddr.
func (l *Listener) pair() (client, server *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.port++
	client, server = Pipe()
	client.local = &net.TCPAddr{IP: serverAddr.IP, Port: l.port}
	client.remote = serverAddr
	server.local, server.remote = client.remote, client.local
	server.onClose = func() { l.remove(server) }
	l.conns[server] = struct{}{}
	return client, server
}

func (l *Listener) remove(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// closeConns closes the server's ends of all connections.
func (l *Listener) closeConns() {
	l.mu.Lock()
	open := make([]*Conn, 0, len(l.conns))
	for c := range l.conns {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}
