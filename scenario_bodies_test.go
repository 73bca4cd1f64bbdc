package heed

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// put returns a PUT request with a body of length n, or of unknown length if n is -1.
func put(t *testing.T, body io.Reader, n int64) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://api.test/items", body)
	require.NoError(t, err)
	if n >= 0 {
		req.ContentLength = n
	}
	return req
}

// expectSameBody checks that each of three attempts sent body, with that length.
func expectSameBody(t *testing.T, req *http.Request, body string, length int64) {
	t.Helper()
	s := newScript(500, errBroken, 200)
	_, err := (&Transport{Base: s, Retry: threeAttempts()}).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, 3, s.sent())
	for _, got := range s.got {
		require.Equal(t, body, got.body)
		require.Equal(t, length, got.length)
	}
}

var bodyScenarios = []scenario{
	{number: 86, summary: "every kind of body, the same bytes on every attempt", run: func(t *testing.T) {
		expectSameBody(t, put(t, strings.NewReader("abc"), -1), "abc", 3)
		expectSameBody(t, put(t, bytes.NewReader([]byte("abc")), -1), "abc", 3)
		expectSameBody(t, put(t, bytes.NewBufferString("abc"), -1), "abc", 3)
		expectSameBody(t, put(t, &opaque{Reader: strings.NewReader("abc")}, -1), "abc", 0)
		expectSameBody(t, put(t, iotest.OneByteReader(strings.NewReader(strings.Repeat("abc", 9000))), -1), strings.Repeat("abc", 9000), 0)
		expectSameBody(t, put(t, iotest.DataErrReader(strings.NewReader("abc")), -1), "abc", 0)
	}},
	{number: 87, summary: "a known length stays, an unknown one stays chunked", run: func(t *testing.T) {
		expectSameBody(t, put(t, &opaque{Reader: strings.NewReader("abc")}, 3), "abc", 3)
		var encodings, lengths []any
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			io.Copy(io.Discard, r.Body)
			encodings, lengths = append(encodings, strings.Join(r.TransferEncoding, "")), append(lengths, r.ContentLength)
			w.WriteHeader(500)
		})
		defer s.close()
		for _, n := range []int64{-1, 3} {
			resp, err := (&Transport{Base: s.base, Retry: threeAttempts()}).RoundTrip(put(t, &opaque{Reader: strings.NewReader("abc")}, n))
			require.NoError(t, err)
			resp.Body.Close()
		}
		require.Equal(t, []any{"chunked", "chunked", "chunked", "", "", ""}, encodings)
		require.Equal(t, []any{int64(-1), int64(-1), int64(-1), int64(3), int64(3), int64(3)}, lengths)
	}},
	{number: 88, summary: "headers are sent again unchanged", run: func(t *testing.T) {
		s := newScript(500)
		req := request(t, "PUT", "x")
		req.Header["X-A"] = []string{"1", "2"}
		_, err := (&Transport{Base: s, Retry: threeAttempts()}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.Header{"X-A": {"1", "2"}}, s.got[0].header)
		require.Equal(t, s.got[0].header, s.got[2].header)
	}},
	{number: 89, summary: "a request keeps its headers and length", run: func(t *testing.T) { expectSameBody(t, put(t, strings.NewReader("abc"), -1), "abc", 3) }},
	{number: 90, summary: "nil and NoBody stay without a body", run: func(t *testing.T) {
		for _, body := range []io.Reader{nil, http.NoBody} {
			s := newScript(func(r *http.Request) (*http.Response, error) {
				require.True(t, r.Body == nil || r.Body == http.NoBody)
				return newResponse(500, ""), nil
			})
			_, err := (&Transport{Base: s, Retry: threeAttempts()}).RoundTrip(put(t, body, -1))
			require.NoError(t, err)
			require.Equal(t, 3, s.sent())
		}
	}},
	{number: 91, summary: "a body that fails while it is read: that error, not sent again", run: func(t *testing.T) {
		for _, body := range []io.ReadCloser{&opaque{Reader: iotest.ErrReader(errBroken)}, &failingReader{}} {
			s := newScript(200)
			req := put(t, body, -1)
			_, err := (&Transport{Base: baseFunc(func(r *http.Request) (*http.Response, error) {
				s.got = append(s.got, received{})
				_, err := io.ReadAll(r.Body)
				return nil, err
			}), Retry: threeAttempts()}).RoundTrip(req)
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, 1, s.sent())
		}
	}},
	{number: 92, summary: "requests with a body sent once, streamed", run: func(t *testing.T) {
		s := newScript(500)
		body := &opaque{Reader: strings.NewReader("abc")}
		req := put(t, body, -1)
		resp, err := (&Transport{Base: s}).RoundTrip(req.WithContext(WithOptions(t.Context(), RequestOptions{NoRetry: true})))
		require.NoError(t, err)
		require.Equal(t, "answer 1", text(t, resp))
		require.Equal(t, 1, s.sent())
		require.Equal(t, 1, body.closed)
	}},
	{number: 93, summary: "a body of a type that is not supported", reason: "http.Request.Body is an io.ReadCloser: every type is supported, or does not compile"},
	{number: 94, summary: "a body kept can be read again and again", run: func(t *testing.T) {
		s := newScript(500)
		_, err := (&Transport{Base: s, Retry: &RetryPolicy{MaxAttempts: 20, MaxElapsed: -1, MaxBackoff: -1}}).RoundTrip(put(t, &opaque{Reader: strings.NewReader("abc")}, -1))
		require.NoError(t, err)
		require.Equal(t, 20, s.sent())
		require.Equal(t, "abc", s.got[19].body)
	}},
	{number: 95, summary: "GET with a body", run: func(t *testing.T) {
		s := newScript(500)
		_, err := (&Transport{Base: s, Retry: threeAttempts()}).RoundTrip(request(t, "GET", "abc"))
		require.NoError(t, err)
		require.Equal(t, "abc", s.got[2].body)
	}},
	{number: 96, summary: "a body that seeks goes back to where it began", run: func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "body")
		require.NoError(t, os.WriteFile(name, []byte("abcdefgh"), 0o600))
		f, err := os.Open(name)
		require.NoError(t, err)
		_, err = f.Seek(3, io.SeekStart)
		require.NoError(t, err)
		expectSameBody(t, put(t, f, 5), "defgh", 5)
		_, err = f.Seek(0, io.SeekStart)
		require.ErrorIs(t, err, os.ErrClosed)
	}},
	{number: 97, summary: "GetBody instead of keeping; where it fails, what the server said", run: func(t *testing.T) {
		calls := 0
		req := put(t, &opaque{Reader: strings.NewReader("abc")}, -1)
		req.GetBody = func() (io.ReadCloser, error) {
			if calls++; calls == 2 {
				return nil, errBroken
			}
			return io.NopCloser(strings.NewReader("abc")), nil
		}
		s := newScript(500)
		resp, err := (&Transport{Base: s}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, "answer 2", text(t, resp))
		require.Equal(t, "abc", s.got[1].body)
		info, _ := InfoFrom(resp)
		require.ErrorIs(t, info.StopReason, errBroken)

		calls = 1
		req.Body = io.NopCloser(strings.NewReader("abc"))
		s = newScript(errConnRefused)
		_, err = (&Transport{Base: s}).RoundTrip(req)
		require.ErrorIs(t, err, errConnRefused)
		require.ErrorIs(t, err, errBroken)
	}},
	{number: 98, summary: "the body is closed, whatever happens", run: func(t *testing.T) {
		for name, tt := range map[string]struct {
			step any
			keep int64
		}{"good": {200, 0}, "bad": {500, 0}, "broken": {errBroken, 0}, "sent once": {500, -1}, "rejected": {response{429, "", []string{"Retry-After", "500"}}, 0}} {
			body := &opaque{Reader: strings.NewReader("abc")}
			(&Transport{Base: newScript(tt.step), Retry: &RetryPolicy{MaxBodyBuffer: tt.keep}}).RoundTrip(put(t, body, -1))
			require.Equal(t, 1, body.closed, name)
		}
	}},
	{number: 99, summary: "503 before 8 MiB were read: all of it on a new connection", run: func(t *testing.T) {
		const size = 8 << 20
		var got []int64
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			if len(got) == 0 {
				got = append(got, 0)
				w.Header().Set("Connection", "close")
				w.WriteHeader(503)
				return
			}
			n, _ := io.Copy(io.Discard, r.Body)
			got = append(got, n)
		})
		defer s.close()
		resp, err := (&Transport{Base: s.base}).RoundTrip(put(t, strings.NewReader(strings.Repeat("x", size)), -1))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, []int64{0, size}, got)
	}},
	{number: 100, summary: "Expect: 100-continue: the body goes when it is asked for; 417 is final", run: func(t *testing.T) {
		var got []string
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			if len(got) == 0 {
				got = append(got, "not read")
				w.WriteHeader(503)
				return
			}
			b, _ := io.ReadAll(r.Body)
			got = append(got, string(b))
		})
		defer s.close()
		s.base.ExpectContinueTimeout = time.Minute
		read := 0
		req := put(t, io.TeeReader(strings.NewReader("abc"), byteCounter(&read)), 3)
		req.Header.Set("Expect", "100-continue")
		resp, err := (&Transport{Base: s.base}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, []string{"not read", "abc"}, got)
		require.Equal(t, 3, read)
		expectStatus(417, 1, 417)(t)
	}},
	{number: 101, summary: "trailers of the request on every attempt", run: func(t *testing.T) {
		var got []string
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			io.Copy(io.Discard, r.Body)
			got = append(got, r.Trailer.Get("X-Sum"))
			w.WriteHeader(500)
		})
		defer s.close()
		req := put(t, &opaque{Reader: strings.NewReader("abc")}, -1)
		req.Trailer = http.Header{"X-Sum": {"7"}}
		resp, err := (&Transport{Base: s.base, Retry: threeAttempts()}).RoundTrip(req)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, []string{"7", "7", "7"}, got)
	}},
}

// failingReader is an io.Seeker whose Read fails.
type failingReader struct{ opaque }

func (*failingReader) Read([]byte) (int, error)       { return 0, errBroken }
func (*failingReader) Seek(int64, int) (int64, error) { return 0, nil }

// byteCounter counts bytes written to it.
func byteCounter(n *int) io.Writer { return (*countingWriter)(n) }

type countingWriter int

func (c *countingWriter) Write(p []byte) (int, error) {
	*c += countingWriter(len(p))
	return len(p), nil
}

var redirectScenarios = []scenario{
	{number: 102, summary: "307 and 308 carry a body that can be had again", run: func(t *testing.T) {
		for _, status := range []int{307, 308} {
			for _, body := range []string{"abc", ""} {
				s := newScript(redirectWith(status), 200)
				resp, err := NewClient(&Transport{Base: s}).Do(request(t, "PUT", body))
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, body, s.got[1].body)
				require.Equal(t, "PUT", s.got[1].method)
			}
		}
	}},
	{number: 103, summary: "a chain of 307 with 500 in between", run: func(t *testing.T) {
		s := newScript(500, redirectWith(307), 500, redirectWith(307), 500, 200)
		resp, err := NewClient(&Transport{Base: s, Retry: threeAttempts()}).Do(request(t, "PUT", "abc"))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, "abc", s.got[5].body)
		require.Equal(t, s.opened-1, s.closed)
	}},
	{number: 104, summary: "307 with an opaque body is handed back", run: func(t *testing.T) {
		s := newScript(redirectWith(307), 200)
		resp, err := NewClient(&Transport{Base: s}).Do(put(t, &opaque{Reader: strings.NewReader("abc")}, -1))
		require.NoError(t, err)
		require.Equal(t, 307, resp.StatusCode)
		require.Equal(t, 1, s.sent())
	}},
	{number: 105, summary: "307 with an opaque body and GetBody, mixed with retries", run: func(t *testing.T) {
		s := newScript(503, redirectWith(307), 503, 200)
		req := put(t, &opaque{Reader: strings.NewReader("abc")}, -1)
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("abc")), nil }
		resp, err := NewClient(&Transport{Base: s, Retry: threeAttempts()}).Do(req)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		for _, got := range s.got {
			require.Equal(t, "abc", got.body)
		}
	}},
	{number: 106, summary: "303 and 302 turn POST into GET without a body", run: func(t *testing.T) {
		for _, status := range []int{302, 303} {
			s := newScript(redirectWith(status), 200)
			_, err := NewClient(&Transport{Base: s}).Do(request(t, "POST", "abc"))
			require.NoError(t, err)
			require.Equal(t, "GET", s.got[1].method)
			require.Empty(t, s.got[1].body)
		}
	}},
	{number: 107, summary: "a RoundTripper hands 3xx back", run: func(t *testing.T) {
		s := newScript(redirectWith(302))
		resp, err := get(t, &Transport{Base: s})
		require.NoError(t, err)
		require.Equal(t, 302, resp.StatusCode)
		require.Equal(t, 1, s.sent())
	}},
}

func redirectWith(status int) response {
	return response{status, "moved", []string{"Location", "http://api.test/elsewhere"}}
}
