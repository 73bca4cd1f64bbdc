package memhttp

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Conn is one end of a connection in memory. It behaves as a *net.TCPConn
// does, as far as HTTP can tell.
type Conn struct {
	in, out       *stream
	local, remote net.Addr
	reset         atomic.Bool // Close resets
	once          sync.Once
	onClose       func() // nil: nothing
}

// Pipe returns both ends of a connection.
func Pipe() (*Conn, *Conn) {
	a, b := newStream(), newStream()
	return &Conn{in: a, out: b, local: serverAddr, remote: serverAddr},
		&Conn{in: b, out: a, local: serverAddr, remote: serverAddr}
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	if err != nil && err != io.EOF {
		err = opError("read", err)
	}
	return n, err
}

// Write implements net.Conn. It returns when all of p is on its way, which is
// when less than 64 KiB are waiting to be read.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	if err != nil {
		err = opError("write", err)
	}
	return n, err
}

// Close implements net.Conn. The other end still reads what was written.
func (c *Conn) Close() error {
	c.once.Do(func() {
		reader, writer := error(io.EOF), error(syscall.EPIPE) // what the other end gets
		if c.reset.Load() {
			reader, writer = syscall.ECONNRESET, syscall.ECONNRESET
		}
		c.out.closeWrite(reader)
		c.in.closeRead(writer)
		_ = c.SetDeadline(time.Time{})
		if c.onClose != nil {
			c.onClose()
		}
	})
	return nil
}

// CloseWrite ends what the other end can read. Reading goes on.
func (c *Conn) CloseWrite() error {
	c.out.closeWrite(io.EOF)
	return nil
}

// SetLinger as of *net.TCPConn: after SetLinger(0), Close throws away what the
// other end has not read yet, and resets the connection.
func (c *Conn) SetLinger(sec int) error {
	c.reset.Store(sec == 0)
	return nil
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.setDeadline(&c.in.reader, t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	c.out.setDeadline(&c.out.writer, t)
	return nil
}

func opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: serverAddr, Err: err}
}
