// Package h2error recognises errors of net/http whose types are not exported, most of them of HTTP/2. Some of
// them have only a text.
package h2error

import (
	"errors"
	"strings"
)

// Error codes of RFC 9113, section 7.
const (
	refusedStream   = 7  // the stream was closed before any processing
	enhanceYourCalm = 11 // the peer causes too much load
)

// streamError has the fields of the stream error of net/http. That type is not exported, but its As method
// fills in any struct type with the same fields.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "h2error: HTTP/2 stream error" }

// NotProcessed reports whether err states that the server has not begun to process the request: it refused the
// stream, or ended the connection before it. net/http sends such a request again itself if it can repeat the
// body.
func NotProcessed(err error) bool {
	var s streamError
	return errors.As(err, &s) && s.Code == refusedStream ||
		matches(err, func(text string) bool {
			return strings.HasPrefix(text, "http2: Transport: cannot retry err [") || strings.HasPrefix(text, goAwayBefore)
		})
}

// IsCalm reports whether err states ENHANCE_YOUR_CALM, for the stream or the connection: the server rejects
// requests because of their rate.
func IsCalm(err error) bool {
	var s streamError
	return errors.As(err, &s) && s.Code == enhanceYourCalm ||
		matches(err, func(text string) bool {
			return strings.HasPrefix(text, goAwayBefore+"ENHANCE_YOUR_CALM") ||
				strings.HasPrefix(text, "http2: server sent GOAWAY ") && strings.Contains(text, " ErrCode=ENHANCE_YOUR_CALM,")
		})
}

// IsBodyLength reports whether err states that the request body is longer or shorter than the request's
// ContentLength. Over HTTP/2, net/http has no error of its own for a shorter one.
func IsBodyLength(err error) bool {
	return matches(err, func(text string) bool {
		return strings.HasPrefix(text, "http: ContentLength=") || text == "http2: request body larger than specified content length"
	})
}

// goAwayBefore begins the error of a request that the connection did not process any more.
const goAwayBefore = "http2: Transport received GOAWAY from server ErrCode:"

// matches reports whether ok returns true for the text of err or of an error that it wraps.
func matches(err error, ok func(text string) bool) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if ok(err.Error()) {
			return true
		}
	}
	return false
}
