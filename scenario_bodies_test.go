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

// opaque is a body that tells nothing of itself, and counts how often it is closed.
type opaque struct {
	io.Reader
	closed int
}

func (o *opaque) Read(p []byte) (int, error) {
	if o.Reader == nil {
		return 0, io.EOF
	}
	return o.Reader.Read(p)
}

func (o *opaque) Close() error { o.closed++; return nil }

// put returns a PUT of body, of length n (-1: not known).
func put(t *testing.T, body io.Reader, n int64) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://api.test/items", body)
	require.NoError(t, err)
	if n >= 0 {
		req.ContentLength = n
	}
	return req
}

// same checks that three attempts each brought body, with that length.
func same(t *testing.T, req *http.Request, body string, length int64) {
	t.Helper()
	s := plays(500, errBroken, 200)
	_, err := (&Transport{Base: s, Retry: three()}).RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, 3, s.sent())
	for _, got := range s.got {
		require.Equal(t, body, got.body)
		require.Equal(t, length, got.length)
	}
}

var bodies = []scenario{
	{number: 86, what: "every kind of body, the same bytes on every attempt", run: func(t *testing.T) {
		same(t, put(t, strings.NewReader("abc"), -1), "abc", 3)
		same(t, put(t, bytes.NewReader([]byte("abc")), -1), "abc", 3)
		same(t, put(t, bytes.NewBufferString("abc"), -1), "abc", 3)
		same(t, put(t, &opaque{Reader: strings.NewReader("abc")}, -1), "abc", 0)
		same(t, put(t, iotest.OneByteReader(strings.NewReader(strings.Repeat("abc", 9000))), -1), strings.Repeat("abc", 9000), 0)
		same(t, put(t, iotest.DataErrReader(strings.NewReader("abc")), -1), "abc", 0)
	}},
	{number: 87, what: "a known length stays, an unknown one stays chunked", run: func(t *testing.T) {
		same(t, put(t, &opaque{Reader: strings.NewReader("abc")}, 3), "abc", 3)
		var encodings, lengths []any
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			io.Copy(io.Discard, r.Body)
			encodings, lengths = append(encodings, strings.Join(r.TransferEncoding, "")), append(lengths, r.ContentLength)
			w.WriteHeader(500)
		})
		defer s.close()
		for _, n := range []int64{-1, 3} {
			resp, err := (&Transport{Base: s.base, Retry: three()}).RoundTrip(put(t, &opaque{Reader: strings.NewReader("abc")}, n))
			require.NoError(t, err)
			resp.Body.Close()
		}
		require.Equal(t, []any{"chunked", "chunked", "chunked", "", "", ""}, encodings)
		require.Equal(t, []any{int64(-1), int64(-1), int64(-1), int64(3), int64(3), int64(3)}, lengths)
	}},
	{number: 88, what: "headers are sent again unchanged", run: func(t *testing.T) {
		s := plays(500)
		req := request(t, "PUT", "x")
		req.Header["X-A"] = []string{"1", "2"}
		_, err := (&Transport{Base: s, Retry: three()}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.Header{"X-A": {"1", "2"}}, s.got[0].header)
		require.Equal(t, s.got[0].header, s.got[2].header)
	}},
	{number: 89, what: "a request keeps its headers and length", run: func(t *testing.T) { same(t, put(t, strings.NewReader("abc"), -1), "abc", 3) }},
	{number: 90, what: "nil and NoBody stay without a body", run: func(t *testing.T) {
		for _, body := range []io.Reader{nil, http.NoBody} {
			s := plays(func(r *http.Request) (*http.Response, error) {
				require.True(t, r.Body == nil || r.Body == http.NoBody)
				return says(500, ""), nil
			})
			_, err := (&Transport{Base: s, Retry: three()}).RoundTrip(put(t, body, -1))
			require.NoError(t, err)
			require.Equal(t, 3, s.sent())
		}
	}},
	{number: 91, what: "a body that fails while it is read: that error, not sent again", run: func(t *testing.T) {
		for _, body := range []io.ReadCloser{&opaque{Reader: iotest.ErrReader(errBroken)}, &failing{}} {
			s := plays(200)
			req := put(t, body, -1)
			_, err := (&Transport{Base: base(func(r *http.Request) (*http.Response, error) {
				s.got = append(s.got, received{})
				_, err := io.ReadAll(r.Body)
				return nil, err
			}), Retry: three()}).RoundTrip(req)
			require.ErrorIs(t, err, errBroken)
			require.Equal(t, 1, s.sent())
		}
	}},
	{number: 92, what: "requests with a body sent once, streamed", run: func(t *testing.T) {
		s := plays(500)
		body := &opaque{Reader: strings.NewReader("abc")}
		req := put(t, body, -1)
		resp, err := (&Transport{Base: s}).RoundTrip(req.WithContext(With(t.Context(), Request{NoRetry: true})))
		require.NoError(t, err)
		require.Equal(t, "answer 1", text(t, resp))
		require.Equal(t, 1, s.sent())
		require.Equal(t, 1, body.closed)
	}},
	{number: 93, what: "a body of a type that is not supported", says: "http.Request.Body is an io.ReadCloser: every type is supported, or does not compile"},
	{number: 94, what: "a body kept can be read again and again", run: func(t *testing.T) {
		s := plays(500)
		_, err := (&Transport{Base: s, Retry: &Retry{Attempts: 20, MaxElapsed: -1}}).RoundTrip(put(t, &opaque{Reader: strings.NewReader("abc")}, -1))
		require.NoError(t, err)
		require.Equal(t, 20, s.sent())
		require.Equal(t, "abc", s.got[19].body)
	}},
	{number: 95, what: "GET with a body", run: func(t *testing.T) {
		s := plays(500)
		_, err := (&Transport{Base: s, Retry: three()}).RoundTrip(request(t, "GET", "abc"))
		require.NoError(t, err)
		require.Equal(t, "abc", s.got[2].body)
	}},
	{number: 96, what: "a body that seeks goes back to where it began", run: func(t *testing.T) {
		name := filepath.Join(t.TempDir(), "body")
		require.NoError(t, os.WriteFile(name, []byte("abcdefgh"), 0o600))
		f, err := os.Open(name)
		require.NoError(t, err)
		_, err = f.Seek(3, io.SeekStart)
		require.NoError(t, err)
		same(t, put(t, f, 5), "defgh", 5)
		_, err = f.Seek(0, io.SeekStart)
		require.ErrorIs(t, err, os.ErrClosed)
	}},
	{number: 97, what: "GetBody instead of keeping; where it fails, what the server said", run: func(t *testing.T) {
		calls := 0
		req := put(t, &opaque{Reader: strings.NewReader("abc")}, -1)
		req.GetBody = func() (io.ReadCloser, error) {
			if calls++; calls == 2 {
				return nil, errBroken
			}
			return io.NopCloser(strings.NewReader("abc")), nil
		}
		s := plays(500)
		resp, err := (&Transport{Base: s}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, "answer 2", text(t, resp))
		require.Equal(t, "abc", s.got[1].body)
		info, _ := InfoFrom(resp)
		require.ErrorIs(t, info.GaveUp, errBroken)

		calls = 1
		req.Body = io.NopCloser(strings.NewReader("abc"))
		s = plays(refused)
		_, err = (&Transport{Base: s}).RoundTrip(req)
		require.ErrorIs(t, err, refused)
		require.ErrorIs(t, err, errBroken)
	}},
	{number: 98, what: "the body is closed, whatever happens", run: func(t *testing.T) {
		for name, tt := range map[string]struct {
			step any
			keep int64
		}{"good": {200, 0}, "bad": {500, 0}, "broken": {errBroken, 0}, "sent once": {500, -1}, "refused": {answer{429, "", []string{"Retry-After", "500"}}, 0}} {
			body := &opaque{Reader: strings.NewReader("abc")}
			(&Transport{Base: plays(tt.step), Retry: &Retry{KeepBody: tt.keep}}).RoundTrip(put(t, body, -1))
			require.Equal(t, 1, body.closed, name)
		}
	}},
	{number: 99, what: "503 before 8 MiB were read: all of it on a new connection", run: func(t *testing.T) {
		const size = 8 << 20
		var got []int64
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
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
	{number: 100, what: "Expect: 100-continue: the body goes when it is asked for; 417 is final", run: func(t *testing.T) {
		var got []string
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
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
		req := put(t, io.TeeReader(strings.NewReader("abc"), counter(&read)), 3)
		req.Header.Set("Expect", "100-continue")
		resp, err := (&Transport{Base: s.base}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, []string{"not read", "abc"}, got)
		require.Equal(t, 3, read)
		wants(417, 1, 417)(t)
	}},
	{number: 101, what: "trailers of the request on every attempt", run: func(t *testing.T) {
		var got []string
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			io.Copy(io.Discard, r.Body)
			got = append(got, r.Trailer.Get("X-Sum"))
			w.WriteHeader(500)
		})
		defer s.close()
		req := put(t, &opaque{Reader: strings.NewReader("abc")}, -1)
		req.Trailer = http.Header{"X-Sum": {"7"}}
		resp, err := (&Transport{Base: s.base, Retry: three()}).RoundTrip(req)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, []string{"7", "7", "7"}, got)
	}},
}

// failing can seek, and fails when it is read.
type failing struct{ opaque }

func (*failing) Read([]byte) (int, error)       { return 0, errBroken }
func (*failing) Seek(int64, int) (int64, error) { return 0, nil }

// counter counts bytes written to it.
func counter(n *int) io.Writer { return (*counting)(n) }

type counting int

func (c *counting) Write(p []byte) (int, error) { *c += counting(len(p)); return len(p), nil }

var redirects = []scenario{
	{number: 102, what: "307 and 308 carry a body that can be had again", run: func(t *testing.T) {
		for _, status := range []int{307, 308} {
			for _, body := range []string{"abc", ""} {
				s := plays(to(status), 200)
				resp, err := NewClient(&Transport{Base: s}).Do(request(t, "PUT", body))
				require.NoError(t, err)
				require.Equal(t, 200, resp.StatusCode)
				require.Equal(t, body, s.got[1].body)
				require.Equal(t, "PUT", s.got[1].method)
			}
		}
	}},
	{number: 103, what: "a chain of 307 with 500 in between", run: func(t *testing.T) {
		s := plays(500, to(307), 500, to(307), 500, 200)
		resp, err := NewClient(&Transport{Base: s, Retry: three()}).Do(request(t, "PUT", "abc"))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, "abc", s.got[5].body)
		require.Equal(t, s.opened-1, s.closed)
	}},
	{number: 104, what: "307 with an opaque body is handed back", run: func(t *testing.T) {
		s := plays(to(307), 200)
		resp, err := NewClient(&Transport{Base: s}).Do(put(t, &opaque{Reader: strings.NewReader("abc")}, -1))
		require.NoError(t, err)
		require.Equal(t, 307, resp.StatusCode)
		require.Equal(t, 1, s.sent())
	}},
	{number: 105, what: "307 with an opaque body and GetBody, mixed with retries", run: func(t *testing.T) {
		s := plays(503, to(307), 503, 200)
		req := put(t, &opaque{Reader: strings.NewReader("abc")}, -1)
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("abc")), nil }
		resp, err := NewClient(&Transport{Base: s, Retry: three()}).Do(req)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		for _, got := range s.got {
			require.Equal(t, "abc", got.body)
		}
	}},
	{number: 106, what: "303 and 302 turn POST into GET without a body", run: func(t *testing.T) {
		for _, status := range []int{302, 303} {
			s := plays(to(status), 200)
			_, err := NewClient(&Transport{Base: s}).Do(request(t, "POST", "abc"))
			require.NoError(t, err)
			require.Equal(t, "GET", s.got[1].method)
			require.Empty(t, s.got[1].body)
		}
	}},
	{number: 107, what: "a RoundTripper hands 3xx back", run: func(t *testing.T) {
		s := plays(to(302))
		resp, err := get(t, &Transport{Base: s})
		require.NoError(t, err)
		require.Equal(t, 302, resp.StatusCode)
		require.Equal(t, 1, s.sent())
	}},
}

func to(status int) answer {
	return answer{status, "moved", []string{"Location", "http://api.test/elsewhere"}}
}
