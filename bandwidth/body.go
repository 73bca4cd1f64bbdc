package bandwidth

import (
	"io"
	"net/http"
)

// A body is the body of a request or of a response whose reads are paced.
type body struct {
	io.ReadCloser
	stream *stream
}

// Read implements io.Reader. The stream ends with the body.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.stream.read(b.ReadCloser, p)
	if err == io.EOF {
		b.stream.close(http.ErrBodyReadAfterClose)
	}
	return n, err
}

// Close implements io.Closer. It ends a Read that waits.
func (b *body) Close() error {
	b.stream.close(http.ErrBodyReadAfterClose)
	return b.ReadCloser.Close()
}

// An upgradedBody is the body of a 101 response, a connection. It is paced in
// both directions.
type upgradedBody struct {
	io.ReadWriteCloser
	*duplex
}

func (b *upgradedBody) Read(p []byte) (int, error)  { return b.duplex.Read(b.ReadWriteCloser, p) }
func (b *upgradedBody) Write(p []byte) (int, error) { return b.duplex.Write(b.ReadWriteCloser, p) }

// Close implements io.Closer. It ends waits in both directions.
func (b *upgradedBody) Close() error {
	b.duplex.close()
	return b.ReadWriteCloser.Close()
}

// A halfClosingBody is an upgradedBody with the method CloseWrite.
type halfClosingBody struct{ *upgradedBody }

// A closeWriter can close one direction of a connection.
type closeWriter interface{ CloseWrite() error }

func (b halfClosingBody) CloseWrite() error { return b.ReadWriteCloser.(closeWriter).CloseWrite() }
