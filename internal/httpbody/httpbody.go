// Package httpbody contains functions that packages heed and poll share: they examine
// response bodies, shorten bodies and redact URLs for errors, and wait on a clock.
package httpbody

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// HasBody reports whether resp has a body with an end to wait for. It is false for the body
// of a 101, which is a connection that belongs to the caller.
func HasBody(resp *http.Response) bool {
	return resp != nil && resp.Body != nil && resp.Body != http.NoBody && resp.StatusCode != http.StatusSwitchingProtocols
}

// ErrReader is an io.Reader whose every Read fails with Err.
type ErrReader struct{ Err error }

// Read implements io.Reader.
func (r ErrReader) Read([]byte) (int, error) { return 0, r.Err }

// maxSnippet is the maximum length of a snippet in bytes.
const maxSnippet = 256

// Snippet returns the first 256 bytes of body, for an error.
func Snippet(body []byte) string { return string(body[:min(len(body), maxSnippet)]) }

// RedactURL returns u without what may be secret: the user, whose name is a key with some
// APIs, the values of the query, whose names do not show which of them are keys, and the
// fragment. It returns "" if u is nil.
func RedactURL(u *url.URL) string {
	if u == nil {
		return ""
	}
	v := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath, Opaque: u.Opaque}
	if u.RawQuery == "" {
		return v.String()
	}
	parts := strings.Split(u.RawQuery, "&")
	for i, p := range parts {
		if name, _, ok := strings.Cut(p, "="); ok {
			parts[i] = name + "=xxxxx"
		} else {
			parts[i] = "xxxxx"
		}
	}
	v.RawQuery = strings.Join(parts, "&")
	return v.String()
}

// Sleep returns nil after d, or the cause of ctx when ctx ends. The time is that of clock,
// such as a throttle.Clock, or of the system if clock is nil.
func Sleep(ctx context.Context, clock interface {
	After(d time.Duration) <-chan time.Time
}, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	after := time.After
	if clock != nil {
		after = clock.After
	}
	select {
	case <-after(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
