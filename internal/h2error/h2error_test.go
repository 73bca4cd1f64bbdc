package h2error

import (
	"context"
	"errors"
	"io"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// The texts are those of net/http in Go 1.25 to 1.27. The test of package heed has servers that cause them.
func TestErrors_ofNetHTTP(t *testing.T) {
	for _, tt := range []struct {
		err                error
		notProcessed, calm bool
	}{
		{nil, false, false},
		{io.EOF, false, false},
		{context.Canceled, false, false},
		{errors.New("http2: Transport: cannot retry err [stream error: stream ID 1; REFUSED_STREAM; received from peer] after Request.Body was written; define Request.GetBody to avoid this error"), true, false},
		{errors.New("http2: Transport: cannot retry err [http2: Transport received Server's graceful shutdown GOAWAY] after Request.Body was written; define Request.GetBody to avoid this error"), true, false},
		{errors.New("http2: Transport received GOAWAY from server ErrCode:ENHANCE_YOUR_CALM"), true, true},
		{errors.New("http2: Transport received GOAWAY from server ErrCode:PROTOCOL_ERROR"), true, false},
		{errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=ENHANCE_YOUR_CALM, debug="too_many_pings"`), false, true},
		{errors.New(`http2: server sent GOAWAY and closed the connection; LastStreamID=1, ErrCode=NO_ERROR, debug="ENHANCE_YOUR_CALM"`), false, false},
		{errors.New("stream error: stream ID 1; ENHANCE_YOUR_CALM"), false, false}, // a text of another package
	} {
		for _, err := range []error{tt.err, &url.Error{Op: "Get", URL: "https://api.test/REFUSED_STREAM", Err: tt.err}} {
			require.Equal(t, tt.notProcessed, NotProcessed(err), "%v", tt.err)
			require.Equal(t, tt.calm, IsCalm(err), "%v", tt.err)
			if tt.err == nil {
				break
			}
		}
	}
	for text, want := range map[string]bool{
		"http: ContentLength=5 with Body length 3":                 true,
		"http2: request body larger than specified content length": true,
		"http: Request.ContentLength=5 with nil Body":              false, // another Request, without a body
		"the server wrote http: ContentLength=5":                   false,
	} {
		require.Equal(t, want, IsBodyLength(&url.Error{Err: errors.New(text)}), text)
	}
	require.True(t, IsCalm(&url.Error{Err: anyStreamError(11)}))
	require.True(t, NotProcessed(&url.Error{Err: anyStreamError(7)}))
	require.False(t, NotProcessed(anyStreamError(8)))
}

// anyStreamError fills in targets as the stream error of net/http does.
type anyStreamError uint32

func (anyStreamError) Error() string { return "stream error" }

func (e anyStreamError) As(target any) bool {
	s, ok := target.(*streamError)
	if ok {
		s.Code = uint32(e)
	}
	return ok
}
