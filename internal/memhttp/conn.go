package memhttp

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Conn is one end of a connection in memory. It behaves like a *net.TCPConn as far as
// net/http requires.
type Conn struct {
	in, out       *stream
	local, remote net.Addr
	reset         atomic.Bool // true: Close resets the connection
	once          sync.Once
	onClose       func() // nil: none
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

// Write implements net.Conn. It returns when all of p is written to the buffer, which holds
// 64 KiB.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	if err != nil {
		err = opError("write", err)
	}
	return n, err
}

// Close implements net.Conn. The other end can still read what was written.
func (c *Conn) Close() error {
	c.once.Do(func() {
		reader, writer := error(io.EOF), error(syscall.EPIPE) // errors of the other end
		if c.reset.Load() {
			reader, writer = syscall.ECONNRESET, syscall.ECONNRESET
		}
		c.in.closeRead(writer) // first, so that nothing is read of what the other end writes when it notices the end
		c.out.closeWrite(reader)
		_ = c.SetDeadline(time.Time{})
		if c.onClose != nil {
			c.onClose()
		}
	})
	return nil
}

// CloseWrite closes the writing side. Reading remains possible.
func (c *Conn) CloseWrite() error {
	c.out.closeWrite(io.EOF)
	return nil
}

// SetLinger behaves like that of *net.TCPConn: after SetLinger(0), Close discards what the
// other end has not read yet and resets the connection.
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
