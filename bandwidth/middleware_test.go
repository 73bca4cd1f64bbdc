package bandwidth_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
)

// TestMiddleware_preservesWriterInterfaces checks that the ResponseWriter has the optional
// interfaces of the one of net/http.
func TestMiddleware_preservesWriterInterfaces(t *testing.T) {
	for version, start := range starts {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var below, paced []string
				m := &bandwidth.Middleware{Download: throttle.AllowAll}
				h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					paced = memhttp.Capabilities(w)
					rc := http.NewResponseController(w)
					assert.NoError(t, rc.SetWriteDeadline(time.Now().Add(time.Hour)))
					assert.NoError(t, rc.SetReadDeadline(time.Now().Add(time.Hour)))
					assert.NoError(t, rc.Flush())
				}))
				s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					below = memhttp.Capabilities(w)
					h.ServeHTTP(w, r)
				}))
				defer s.Close()
				rt := s.Transport()
				defer rt.CloseIdleConnections()
				resp, err := (&http.Client{Transport: rt}).Get(s.URL)
				require.NoError(t, err)
				resp.Body.Close()
				require.Equal(t, below, paced)
			})
		})
	}
}

// TestMiddleware_wrapsAnyWriter checks ResponseWriters of other middleware, which implement
// fewer interfaces.
func TestMiddleware_wrapsAnyWriter(t *testing.T) {
	type (
		plain   struct{ http.ResponseWriter }
		flusher struct {
			plain
			http.Flusher
		}
		hijacker struct {
			flusher
			http.Hijacker
		}
	)
	rec := plain{httptest.NewRecorder()}
	for name, tt := range map[string]struct {
		w    http.ResponseWriter
		want []string
	}{
		"none":    {rec, []string{"string"}},
		"flushes": {flusher{rec, httptest.NewRecorder()}, []string{"flush", "string"}},
		"hijacks": {hijacker{flusher{rec, httptest.NewRecorder()}, nil}, []string{"flush", "hijack", "string"}},
	} {
		m := &bandwidth.Middleware{Download: throttle.AllowAll}
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			require.Equal(t, tt.want, memhttp.Capabilities(w), name)
			require.Equal(t, tt.w, w.(interface{ Unwrap() http.ResponseWriter }).Unwrap(), name)
			require.ErrorIs(t, http.NewResponseController(w).SetReadDeadline(time.Now()), http.ErrNotSupported)
		})).ServeHTTP(tt.w, newRequest(http.MethodGet))
	}
}

func TestMiddleware_withoutLimitersIsNotThere(t *testing.T) {
	var got http.ResponseWriter
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { got = w }))
	rec := httptest.NewRecorder()
	new(bandwidth.Middleware).Handler(h).ServeHTTP(rec, newRequest(http.MethodGet))
	require.Same(t, rec, got)
}

// TestMiddleware_bodiesThatAreNotSentTakeNoUnits checks responses without a body.
func TestMiddleware_bodiesThatAreNotSentTakeNoUnits(t *testing.T) {
	for name, tt := range map[string]struct {
		method string
		status int
		want   int64
	}{
		"GET":          {http.MethodGet, 200, 300},
		"HEAD":         {http.MethodHead, 200, 0},
		"not modified": {http.MethodGet, 304, 0},
		"no content":   {http.MethodGet, 204, 0},
		"early hints":  {http.MethodGet, 103, 300},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probe{decide: grantAll}
				s := memhttp.NewServer((&bandwidth.Middleware{Download: p}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(tt.status)
					w.Write(make([]byte, 100))
					io.WriteString(w, strings.Repeat("x", 100))
					w.(io.ReaderFrom).ReadFrom(zerosOf(100))
				})))
				defer s.Close()
				req, err := http.NewRequest(tt.method, s.URL, nil)
				require.NoError(t, err)
				resp, err := s.Client().Do(req)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				resp.Body.Close()
				synctest.Wait()
				used, open := p.result()
				require.Equal(t, tt.want, used)
				require.Zero(t, open)
				require.Equal(t, tt.want > 0, len(p.claims) > 0, "nothing is asked for")
			})
		})
	}
}

// A readFromRecorder is a ResponseWriter that records the types that are passed to ReadFrom.
type readFromRecorder struct {
	*httptest.ResponseRecorder
	http.Hijacker
	files, others int
}

func (w *readFromRecorder) ReadFrom(src io.Reader) (int64, error) {
	if l, ok := src.(*io.LimitedReader); ok {
		if _, ok := l.R.(interface{ Fd() uintptr }); ok {
			w.files++
			return io.Copy(w.ResponseRecorder, src)
		}
	}
	w.others++
	return io.Copy(w.ResponseRecorder, src)
}

// TestMiddleware_filesArePassedOnByReference checks that regular files reach ReadFrom of the
// ResponseWriter below, in chunks, and that all their bytes are paced.
func TestMiddleware_filesArePassedOnByReference(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	for name, tt := range map[string]struct {
		copy func(w http.ResponseWriter, f *os.File) (int64, error)
		want []byte
		file bool
	}{
		"whole":      {func(w http.ResponseWriter, f *os.File) (int64, error) { return io.Copy(w, f) }, content, true},
		"first half": {func(w http.ResponseWriter, f *os.File) (int64, error) { return io.CopyN(w, f, 500_000) }, content[:500_000], true},
		"range": {func(w http.ResponseWriter, f *os.File) (int64, error) {
			f.Seek(300_000, io.SeekStart)
			return io.CopyN(w, f, 300_000)
		}, content[300_000:600_000], true},
		"last byte": {func(w http.ResponseWriter, f *os.File) (int64, error) {
			f.Seek(-1, io.SeekEnd)
			return io.Copy(w, f)
		}, content[len(content)-1:], true},
		"more than there is": {func(w http.ResponseWriter, f *os.File) (int64, error) {
			n, err := io.CopyN(w, f, 2_000_000)
			require.Equal(t, io.EOF, err)
			return n, nil
		}, content, true},
		"served": {func(w http.ResponseWriter, f *os.File) (int64, error) {
			http.ServeContent(w, newRequest(http.MethodGet), "file", time.Time{}, f)
			return int64(len(content)), nil
		}, content, true},
		"not a file": {func(w http.ResponseWriter, _ *os.File) (int64, error) {
			return io.Copy(w, struct{ io.Reader }{bytes.NewReader(content)})
		}, content, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, err := os.Open(path)
				require.NoError(t, err)
				defer f.Close()
				p := &probe{decide: func(throttle.Claim) (throttle.Decision, error) {
					return throttle.Decision{OK: true, Limit: 100_000, Per: 10 * time.Millisecond}, nil
				}}
				w := &readFromRecorder{ResponseRecorder: httptest.NewRecorder()}
				(&bandwidth.Middleware{Download: p}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					n, err := tt.copy(w, f)
					require.NoError(t, err)
					require.EqualValues(t, len(tt.want), n)
				})).ServeHTTP(w, newRequest(http.MethodGet))
				require.True(t, bytes.Equal(tt.want, w.Body.Bytes()))
				require.Zero(t, w.others)
				if tt.file {
					require.Equal(t, (len(tt.want)+49_999)/50_000, w.files)
				}
				used, open := p.result()
				require.EqualValues(t, len(tt.want), used)
				require.Zero(t, open)
			})
		})
	}
}

// A failingReadFrom is a ResponseWriter whose ReadFrom fails after n bytes.
type failingReadFrom struct {
	readFromRecorder
	n int64
}

func (w *failingReadFrom) ReadFrom(src io.Reader) (int64, error) {
	n, _ := io.CopyN(io.Discard, src, w.n)
	w.n -= n
	if w.n == 0 {
		return n, io.ErrClosedPipe
	}
	return n, nil
}

// TestMiddleware_filesThatAreNotSentTakeNoUnits checks that what is claimed for a file is what
// was sent of it.
func TestMiddleware_filesThatAreNotSentTakeNoUnits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, 1000), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	p := &probe{decide: func(throttle.Claim) (throttle.Decision, error) {
		return throttle.Decision{OK: true, Limit: 800, Per: 10 * time.Millisecond}, nil
	}}
	w := &failingReadFrom{readFromRecorder{ResponseRecorder: httptest.NewRecorder()}, 550}
	(&bandwidth.Middleware{Download: p}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n, err := w.(io.ReaderFrom).ReadFrom(f)
		require.EqualValues(t, 550, n)
		require.Equal(t, io.ErrClosedPipe, err)
		used, open := p.result()
		require.EqualValues(t, 550, used, "returned immediately")
		require.Zero(t, open)
	})).ServeHTTP(w, newRequest(http.MethodGet))
}

// TestMiddleware_filesThatShrink checks a file that is truncated while it is copied.
func TestMiddleware_filesThatShrink(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, make([]byte, 1000), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	p := &probe{decide: func(c throttle.Claim) (throttle.Decision, error) {
		if !c.DryRun {
			require.NoError(t, os.Truncate(path, 550))
		}
		return throttle.Decision{OK: true, Limit: 800, Per: 10 * time.Millisecond}, nil
	}}
	w := &readFromRecorder{ResponseRecorder: httptest.NewRecorder()}
	(&bandwidth.Middleware{Download: p}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n, err := w.(io.ReaderFrom).ReadFrom(f)
		require.NoError(t, err)
		require.EqualValues(t, 550, n)
	})).ServeHTTP(w, newRequest(http.MethodGet))
	used, open := p.result()
	require.EqualValues(t, 550, used)
	require.Zero(t, open)
}

// TestMiddleware_deadlinesOfWhatIsNotPaced checks deadlines of a direction without a limiter, and
// of a ResponseWriter that has none: writes then do not end at the deadline.
func TestMiddleware_deadlinesOfWhatIsNotPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, m := range map[string]*bandwidth.Middleware{
			"upload": {Upload: throttle.AllowAll}, "download": {Download: throttle.AllowAll},
		} {
			s := memhttp.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				rc := http.NewResponseController(w)
				assert.NoError(t, rc.SetReadDeadline(time.Now().Add(time.Hour)), name)
				assert.NoError(t, rc.SetWriteDeadline(time.Now().Add(time.Hour)), name)
			})))
			resp, err := s.Client().Get(s.URL)
			require.NoError(t, err, name)
			resp.Body.Close()
			s.Close()
		}
	})
	(&bandwidth.Middleware{Download: throttle.AllowAll}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		require.ErrorIs(t, http.NewResponseController(w).SetWriteDeadline(time.Now()), http.ErrNotSupported)
		_, err := w.Write([]byte("x"))
		require.NoError(t, err)
	})).ServeHTTP(discarder{}, newRequest(http.MethodGet))
}

// An unseekable is a regular file that cannot tell its position.
type unseekable struct{ *os.File }

func (unseekable) Seek(int64, int) (int64, error) { return 0, os.ErrInvalid }

// TestMiddleware_otherFilesAreCopied checks a pipe, an empty file, and a file whose position is
// not known.
func TestMiddleware_otherFilesAreCopied(t *testing.T) {
	dir := t.TempDir()
	open := func(name, content string) *os.File {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		f, err := os.Open(path)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	r, pipe, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	_, err = pipe.WriteString("pipe")
	require.NoError(t, err)
	require.NoError(t, pipe.Close())
	for want, src := range map[string]io.Reader{"pipe": r, "": open("empty", ""), "file": unseekable{open("full", "file")}} {
		w := &readFromRecorder{ResponseRecorder: httptest.NewRecorder()}
		p := &probe{decide: grantAll}
		(&bandwidth.Middleware{Download: p}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n, err := w.(io.ReaderFrom).ReadFrom(src)
			require.NoError(t, err)
			require.EqualValues(t, len(want), n)
		})).ServeHTTP(w, newRequest(http.MethodGet))
		require.Equal(t, want, w.Body.String())
		require.Zero(t, w.files+w.others)
		used, _ := p.result()
		require.EqualValues(t, len(want), used)
	}
}

// TestMiddleware_requestBodyOfTheHandlerIsPaced checks that the server's own request is not
// modified.
func TestMiddleware_requestBodyOfTheHandlerIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bandwidth.Middleware{Upload: throttle.NewTokenBucket(throttle.PerSecond(100))}
		req, err := http.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", 1000)))
		require.NoError(t, err)
		before, begin := req.Body, time.Now()
		m.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Len(t, body, 1000)
		})).ServeHTTP(httptest.NewRecorder(), req)
		require.Equal(t, before, req.Body)
		require.Equal(t, 9*time.Second, time.Since(begin))
	})
}

// TestMiddleware_slowResponsesArriveEvenly checks that bytes that were granted do not stay in
// the buffers of the server while the next ones wait.
func TestMiddleware_slowResponsesArriveEvenly(t *testing.T) {
	for version, start := range starts {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &bandwidth.Middleware{Download: newBucket(1024)}
				s := start(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n, err := w.Write(make([]byte, 20<<10))
					assert.NoError(t, err)
					assert.Equal(t, 20<<10, n)
				})))
				defer s.Close()
				rt := s.Transport()
				defer rt.CloseIdleConnections()
				begin := time.Now()
				resp, err := (&http.Client{Transport: rt}).Get(s.URL)
				require.NoError(t, err)
				defer resp.Body.Close()
				got, buf := 0, make([]byte, 32<<10)
				for got < 20<<10 {
					n, err := resp.Body.Read(buf)
					if got+n < 20<<10 {
						require.NoError(t, err)
					}
					if due := 1024 * (1 + time.Since(begin).Seconds()); got > 4<<10 {
						require.LessOrEqual(t, due-float64(got), 1024., "two chunks after %d bytes", got)
					}
					got += n
				}
			})
		})
	}
}

// TestMiddleware_shortResponsesKeepTheirLength checks that the server still states the length
// of a short response that waits.
func TestMiddleware_shortResponsesKeepTheirLength(t *testing.T) {
	for version, start := range starts {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &bandwidth.Middleware{Download: newBucket(100)}
				s := start(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Write(make([]byte, 1000))
					io.WriteString(w, strings.Repeat("x", 1000))
				})))
				defer s.Close()
				rt := s.Transport()
				defer rt.CloseIdleConnections()
				begin := time.Now()
				resp, err := (&http.Client{Transport: rt}).Get(s.URL)
				require.NoError(t, err)
				defer resp.Body.Close()
				require.EqualValues(t, 2000, resp.ContentLength)
				n, err := io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.EqualValues(t, 2000, n)
				require.Equal(t, 19*time.Second, time.Since(begin))
			})
		})
	}
}

// TestMiddleware_outerMiddlewareSeesTheRoute checks that the pattern that a mux inside has matched is
// set in the request outside, as without a limit.
func TestMiddleware_outerMiddlewareSeesTheRoute(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /items/{id}", func(http.ResponseWriter, *http.Request) {})
	m := &bandwidth.Middleware{Upload: throttle.AllowAll}
	r := httptest.NewRequest(http.MethodPost, "/items/7", strings.NewReader("body"))
	m.Handler(mux).ServeHTTP(httptest.NewRecorder(), r)
	require.Equal(t, "POST /items/{id}", r.Pattern)
}
