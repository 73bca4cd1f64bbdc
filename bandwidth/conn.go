package bandwidth

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"time"
)

// A conn is a hijacked connection that is paced.
type conn struct {
	net.Conn
	*duplex
}

// hijacked returns c and the buffers of rw so that they are paced by d.
func hijacked(c net.Conn, rw *bufio.ReadWriter, d *duplex) net.Conn {
	p := &conn{c, d}
	var paced net.Conn = p
	if _, ok := c.(closeWriter); ok {
		paced = halfClosingConn{p}
	}
	if rw == nil {
		return paced
	}
	buffered, _ := rw.Reader.Peek(rw.Reader.Buffered())
	rw.Reader.Reset(io.MultiReader(received{bytes.NewReader(bytes.Clone(buffered)), d}, paced))
	rw.Writer.Reset(paced)
	return paced
}

func (c *conn) Read(p []byte) (int, error)  { return c.duplex.Read(c.Conn, p) }
func (c *conn) Write(p []byte) (int, error) { return c.duplex.Write(c.Conn, p) }

// Close implements net.Conn. It ends waits in both directions.
func (c *conn) Close() error {
	c.duplex.close()
	return c.Conn.Close()
}

// SetDeadline implements net.Conn. Deadlines also end waits.
func (c *conn) SetDeadline(t time.Time) error {
	c.setReadDeadline(t)
	c.setWriteDeadline(t)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.setReadDeadline(t)
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.setWriteDeadline(t)
	return c.Conn.SetWriteDeadline(t)
}

// NetConn returns the connection below, as the method of tls.Conn does.
func (c *conn) NetConn() net.Conn { return c.Conn }

// A received reads bytes that had arrived before the connection was hijacked.
type received struct {
	bytes  *bytes.Reader
	duplex *duplex
}

func (r received) Read(p []byte) (int, error) { return r.duplex.Read(r.bytes, p) }

// A halfClosingConn is a conn with the method CloseWrite.
type halfClosingConn struct{ *conn }

func (c halfClosingConn) CloseWrite() error { return c.Conn.(closeWriter).CloseWrite() }
