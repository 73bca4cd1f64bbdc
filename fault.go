package heed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// classifyError judges a failure without an answer, by its type alone. What has
// no type that tells counts as perhaps sent.
func classifyError(err error) retryClass {
	switch {
	case isPermanent(err):
		return retryNever
	case notSent(err):
		return retryAlways
	}
	return retryIdempotent
}

// isPermanent reports whether err would come again, or is somebody's wish: a
// certificate that is not trusted, a TLS alert of the other side, a server that
// does not speak TLS, an address that is none, a name that is not known, a context
// that was cancelled below the Transport, or a Transport below that gave up.
func isPermanent(err error) bool {
	var (
		cert           *tls.CertificateVerificationError
		unknown        x509.UnknownAuthorityError
		hostname       x509.HostnameError
		invalidCert    x509.CertificateInvalidError
		record         tls.RecordHeaderError
		ech            *tls.ECHRejectionError
		op             *net.OpError
		dns            *net.DNSError
		addr           *net.AddrError
		parse          *net.ParseError
		network        net.UnknownNetworkError
		invalidRequest invalidRequestError
		below          *GiveUpError
	)
	switch {
	case errors.As(err, &invalidRequest), errors.As(err, &below), errors.Is(err, throttle.ErrRefused), errors.Is(err, queue.ErrClosed):
		return true
	case errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &hostname), errors.As(err, &invalidCert),
		errors.As(err, &record), errors.As(err, &ech), errors.Is(err, http.ErrSchemeMismatch), errors.Is(err, context.Canceled):
		return true
	case errors.As(err, &addr), errors.As(err, &parse), errors.As(err, &network):
		return true
	case errors.As(err, &dns):
		return dns.IsNotFound && !dns.IsTemporary && !dns.IsTimeout
	}
	return errors.As(err, &op) && op.Op == "remote error" // a TLS alert
}

// isNetworkError reports whether err has a type or value that failures of connections have.
func isNetworkError(err error) bool {
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// notSent reports whether err proves that the server has not begun the work.
func notSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return true
	}
	var s streamError
	return errors.As(err, &s) && s.Code == refusedStream
}

// streamError has the fields of the HTTP/2 stream errors of net/http, whose type
// is not exported but lets errors.As fill in any struct of the same form.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "heed: HTTP/2 stream error" }

// refusedStream is REFUSED_STREAM of RFC 9113, section 7: the stream was closed
// before any work was done.
const refusedStream = 7
