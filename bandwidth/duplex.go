package bandwidth

import (
	"io"
	"net"
	"time"
)

// A duplex paces both directions of a connection. A direction whose stream is nil is not
// paced.
type duplex struct {
	in, out *stream

	reading, writing lock // held during a Read or Write: chunks of two calls must not mix
}

// Read reads from r.
func (d *duplex) Read(r io.Reader, p []byte) (int, error) {
	if d.in == nil {
		return r.Read(p)
	}
	d.reading.lock()
	defer d.reading.unlock()
	return d.in.read(r, p)
}

// Write writes p to w.
func (d *duplex) Write(w io.Writer, p []byte) (int, error) {
	if d.out == nil {
		return w.Write(p)
	}
	d.writing.lock()
	defer d.writing.unlock()
	return writePaced(d.out, p, w.Write)
}

func (d *duplex) setReadDeadline(t time.Time) {
	if d.in != nil {
		d.in.waits.setDeadline(t)
	}
}

func (d *duplex) setWriteDeadline(t time.Time) {
	if d.out != nil {
		d.out.waits.setDeadline(t)
	}
}

// close ends the waits in both directions.
func (d *duplex) close() {
	if d.in != nil {
		d.in.close(net.ErrClosed)
	}
	if d.out != nil {
		d.out.close(net.ErrClosed)
	}
}
