package heedtest

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
)

// A listener records the connections that it accepts.
type listener struct {
	net.Listener
	recorder *recorder
	http2    bool
	tls      *tls.Config // nil means no TLS
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, network: inner, closed: make(chan struct{}), settingsSent: make(chan struct{})}
	if l.tls != nil {
		c.Conn = tls.Server(inner, l.tls)
	}
	c.in, c.out = c.Conn, c.Conn
	if l.http2 {
		c.frames = &frameInserter{dst: c.Conn}
		c.in, c.out = newStreamTagger(c.Conn), c.frames
	}
	l.recorder.addConn(c)
	return c, nil
}

// A conn is a connection that can be made to fail.
//
//	net/http ─▶ conn: hang ─▶ in, out: frames of HTTP/2 ─▶ Conn: TLS ─▶ network
type conn struct {
	net.Conn                // a *tls.Conn with TLS, otherwise network
	network  net.Conn       // what the listener accepted
	n        int            // counted from 1
	in       io.Reader      // reads from Conn
	out      io.Writer      // writes to Conn
	frames   *frameInserter // the same as out; nil with HTTP/1.1

	mu      sync.Mutex
	hanging bool
	closed  chan struct{}
	once    sync.Once

	settingsSent chan struct{} // closed by the first write of the server, which contains its settings
	settingsOnce sync.Once
}

// hang makes c behave as if its other end had lost power: nothing arrives, nothing is sent,
// and no error is reported.
func (c *conn) hang() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hanging = true
}

func (c *conn) isHanging() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hanging
}

// reset closes c with a reset, without a graceful shutdown.
func (c *conn) reset() {
	if l, ok := c.network.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	_ = c.network.Close() // before TLS can say that it ends
	c.Close()
}

// tlsState returns the state of TLS. Nil means that c has none.
func (c *conn) tlsState() *tls.ConnectionState {
	encrypted, ok := c.Conn.(*tls.Conn)
	if !ok {
		return nil
	}
	state := encrypted.ConnectionState()
	return &state
}

// insert sends an HTTP/2 frame after the settings of the server, which must be the first
// frame that a client receives. Over HTTP/1.1 it does nothing.
func (c *conn) insert(f []byte) {
	if c.frames == nil || c.isHanging() {
		return
	}
	select {
	case <-c.settingsSent:
		c.frames.insert(f)
	case <-c.closed:
	}
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	if c.isHanging() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if c.isHanging() {
		return len(p), nil
	}
	defer c.settingsOnce.Do(func() { close(c.settingsSent) })
	return c.out.Write(p)
}

// CloseWrite closes the writing direction, as the server does before it closes the connection.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && !c.isHanging() {
		return half.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// connOf returns the connection on which r arrived.
func connOf(r *http.Request) *conn { return r.Context().Value(connKey{}).(*conn) }
