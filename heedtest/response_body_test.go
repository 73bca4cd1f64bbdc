package heedtest_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/heedtest"
)

// TestFault_sendsHalfOfTheBody checks what a client reads of a body that is cut off.
func TestFault_sendsHalfOfTheBody(t *testing.T) {
	for fault, want := range map[heedtest.Fault]string{
		heedtest.NoFault: "12345678", heedtest.CutBody: "1234", heedtest.ResetBody: "1234", heedtest.HangBody: "1234", heedtest.HangConn: "12345678",
	} {
		s := &heedtest.Server{Respond: heedtest.Script(heedtest.Response{Body: "12345678", Fault: fault, ByteInterval: time.Second})}
		inMemory(t, s, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
			require.NoError(t, err)
			start := time.Now()
			resp, err := s.Client().Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			require.EqualValues(t, 8, resp.ContentLength, "of the complete body")
			body, err := io.ReadAll(resp.Body)
			if fault == heedtest.ResetBody && len(body) == 3 {
				body = append(body, '4') // a reset may discard the byte that was sent last
			}
			require.Equal(t, want, string(body), "fault %d", fault)
			require.Equal(t, len(want) == 8, err == nil, "fault %d: %v", fault, err)
			if fault == heedtest.HangBody {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			} else {
				require.Equal(t, time.Duration(len(want))*time.Second, time.Since(start), "fault %d", fault)
			}
		})
	}
}

// TestResponse_statesItsContentLength checks a Content-Length of the Response.
func TestResponse_statesItsContentLength(t *testing.T) {
	s := &heedtest.Server{Respond: heedtest.Script(heedtest.Response{Body: "12345678", Header: http.Header{"Content-Length": {"9"}}})}
	inMemory(t, s, func(t *testing.T) {
		resp, err := s.Client().Get(s.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		require.EqualValues(t, 9, resp.ContentLength)
		_, err = io.ReadAll(resp.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}

// TestServer_keepsTheConnectionOfResponsesWithoutABody checks that responses that have no body are
// complete, so that five requests use one connection.
func TestServer_keepsTheConnectionOfResponsesWithoutABody(t *testing.T) {
	for _, p := range protocols {
		for _, tt := range []struct {
			method, body string
			status       int
		}{{"GET", "", 200}, {"HEAD", "", 200}, {"GET", "", 204}, {"GET", "", 304}, {"GET", "ignored", 204}, {"DELETE", "ignored", 304}} {
			s := &heedtest.Server{HTTP2: p.http2, TLS: p.tls, Respond: func(heedtest.Request) heedtest.Response {
				return heedtest.Response{Status: tt.status, Body: tt.body}
			}}
			inMemory(t, s, func(t *testing.T) {
				c := s.Client()
				for range 5 {
					req, err := http.NewRequestWithContext(t.Context(), tt.method, s.URL, nil)
					require.NoError(t, err)
					resp, err := c.Do(req)
					require.NoError(t, err)
					_, err = io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Equal(t, tt.status, resp.StatusCode)
					synctest.Wait()
				}
				require.Equal(t, 1, s.Conns(), "%s %d", tt.method, tt.status)
				c.CloseIdleConnections()
			})
		}
	}
}
