package bandwidth_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

func newRequest(method string) *http.Request {
	r, err := http.NewRequest(method, "http://mem.test", nil)
	if err != nil {
		panic(err)
	}
	return r
}

// TestTransport_leavesOthersAsTheyAre checks that bodies that are not paced are those of the
// caller and of Base, and that the request is not modified.
func TestTransport_leavesOthersAsTheyAre(t *testing.T) {
	responseBody := io.NopCloser(strings.NewReader("x"))
	var sent *http.Request
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = r
		return &http.Response{StatusCode: http.StatusOK, Body: responseBody}, nil
	})
	for name, tt := range map[string]struct{ upload, download throttle.Limiter }{
		"neither":  {nil, nil},
		"upload":   {throttle.AllowAll, nil},
		"download": {nil, throttle.AllowAll},
	} {
		req, err := http.NewRequest(http.MethodPut, "http://mem.test", strings.NewReader("body"))
		require.NoError(t, err)
		before := *req
		rt := &bandwidth.Transport{Base: base, Upload: tt.upload, Download: tt.download}
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err, name)
		require.Equal(t, tt.download != nil, resp.Body != responseBody, name)
		require.Equal(t, tt.upload != nil, sent != req, name)
		require.Equal(t, before.Body, req.Body, name)
		require.Equal(t, before.ContentLength, sent.ContentLength, name)
		require.NotNil(t, sent.GetBody, name)

		none := newRequest(http.MethodGet)
		_, err = rt.RoundTrip(none)
		require.NoError(t, err)
		require.Same(t, none, sent, name)
		none.Body = http.NoBody
		_, err = rt.RoundTrip(none)
		require.NoError(t, err)
		require.Same(t, none, sent, name)
	}
}

// TestTransport_passesOnWhatBaseReturns checks results of a Base that breaks the contract of
// http.RoundTripper.
func TestTransport_passesOnWhatBaseReturns(t *testing.T) {
	broken, resp := errors.New("broken"), &http.Response{Body: io.NopCloser(strings.NewReader("x"))}
	body := resp.Body
	for _, tt := range []struct {
		resp *http.Response
		err  error
	}{{nil, nil}, {nil, broken}, {resp, broken}} {
		rt := &bandwidth.Transport{Download: throttle.AllowAll, Base: roundTripper(func(*http.Request) (*http.Response, error) { return tt.resp, tt.err })}
		got, err := rt.RoundTrip(newRequest(http.MethodGet))
		require.Equal(t, tt.err, err)
		require.Same(t, tt.resp, got)
	}
	require.Equal(t, body, resp.Body, "not paced")
}

// A closingTripper counts calls of CloseIdleConnections.
type closingTripper struct {
	roundTripper
	closed int
}

func (c *closingTripper) CloseIdleConnections() { c.closed++ }

func TestTransport_closesIdleConnectionsOfBase(t *testing.T) {
	base := new(closingTripper)
	(&bandwidth.Transport{Base: base}).CloseIdleConnections()
	require.Equal(t, 1, base.closed)
	(&bandwidth.Transport{Base: base.roundTripper}).CloseIdleConnections() // has no such method
	new(bandwidth.Transport).CloseIdleConnections()
}

func TestTransport_bodiesWithoutBytesAreNotReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "5")
			io.WriteString(w, "hello")
		}))
		defer s.Close()
		rt := &bandwidth.Transport{Base: s.Transport(), Download: throttle.DenyAll, Upload: throttle.DenyAll}
		defer rt.CloseIdleConnections()
		req := newRequest(http.MethodHead)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.NoBody, resp.Body)
		require.EqualValues(t, 5, resp.ContentLength)
	})
}

// TestTransport_keepsTheMessage checks lengths, trailers and informational responses in both
// versions of HTTP.
func TestTransport_keepsTheMessage(t *testing.T) {
	for version, start := range starts {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &bandwidth.Middleware{Upload: newBucket(tenMB), Download: newBucket(tenMB)}
				s := start(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Link", "</x>")
					w.WriteHeader(http.StatusEarlyHints)
					w.Header().Set("Trailer", "Sum")
					body, err := io.ReadAll(r.Body)
					assert.NoError(t, err)
					fmt.Fprintf(w, "%d %s %s", r.ContentLength, body, r.Trailer.Get("Check"))
					w.Header().Set("Sum", "42")
				})))
				defer s.Close()
				rt := &bandwidth.Transport{Base: s.Transport(), Upload: newBucket(tenMB), Download: newBucket(tenMB)}
				defer rt.CloseIdleConnections()
				hints := 0
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
					hints++
					return nil
				}})
				for _, tt := range []struct {
					body   io.Reader
					length int64
				}{{strings.NewReader("body"), 4}, {io.MultiReader(strings.NewReader("body")), -1}} {
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, tt.body)
					require.NoError(t, err)
					check := ""
					if tt.length < 0 {
						check = "ok"
						req.Trailer = http.Header{"Check": {check}}
					}
					resp, err := rt.RoundTrip(req)
					require.NoError(t, err)
					text, err := io.ReadAll(resp.Body)
					require.NoError(t, err)
					require.NoError(t, resp.Body.Close())
					require.Equal(t, fmt.Sprintf("%d body %s", tt.length, check), string(text))
					require.Equal(t, "42", resp.Trailer.Get("Sum"))
				}
				require.Equal(t, 2, hints)
			})
		})
	}
}

// TestTransport_bothDirectionsAtTheSameTime sends a request body and reads the response
// meanwhile.
func TestTransport_bothDirectionsAtTheSameTime(t *testing.T) {
	for version, start := range starts {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &bandwidth.Middleware{Upload: newBucket(tenMB), Download: newBucket(tenMB)}
				s := start(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					rc := http.NewResponseController(w)
					if r.ProtoMajor == 1 {
						assert.NoError(t, rc.EnableFullDuplex())
					}
					line := make([]byte, 5)
					for {
						if _, err := io.ReadFull(r.Body, line); err != nil {
							return
						}
						w.Write(line)
						assert.NoError(t, rc.Flush())
					}
				})))
				defer s.Close()
				rt := &bandwidth.Transport{Base: s.Transport(), Upload: newBucket(tenMB), Download: newBucket(tenMB)}
				defer rt.CloseIdleConnections()
				r, w := io.Pipe()
				go w.Write([]byte("ping0"))
				resp, err := (&http.Client{Transport: rt}).Post(s.URL, "", r)
				require.NoError(t, err)
				echo := make([]byte, 5)
				for i := range 5 {
					_, err := io.ReadFull(resp.Body, echo)
					require.NoError(t, err)
					require.Equal(t, fmt.Sprint("ping", i), string(echo))
					fmt.Fprint(w, "ping", i+1)
				}
				w.Close()
				rest, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.Equal(t, "ping5", string(rest))
				resp.Body.Close()
			})
		})
	}
}

func TestTransport_keysHaveTheirOwnLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := &keyed.Limiter{New: func(string) throttle.Limiter { return newBucket(1000) }}
		rt := &bandwidth.Transport{Base: responding(zeros{}), Download: limits, Key: heed.PerHost}
		begin := time.Now()
		for _, host := range []string{"a.test", "b.test"} {
			req, err := http.NewRequest(http.MethodGet, "http://"+host, nil)
			require.NoError(t, err)
			resp, err := rt.RoundTrip(req)
			require.NoError(t, err)
			_, err = io.ReadFull(resp.Body, make([]byte, 1000))
			require.NoError(t, err)
			resp.Body.Close()
			require.Zero(t, time.Since(begin))
		}
		req, err := http.NewRequest(http.MethodGet, "http://a.test", nil)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.ReadFull(resp.Body, make([]byte, 1000))
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(begin))
	})
}

// A closeCounter counts calls of Close.
type closeCounter struct {
	io.Reader
	closed atomic.Int32
}

func (c *closeCounter) Close() error {
	c.closed.Add(1)
	return nil
}

func TestTransport_closesTheBodyIfAFunctionPanics(t *testing.T) {
	panics := func(*http.Request) string { panic("oops") }
	for name, rt := range map[string]*bandwidth.Transport{
		"key":    {Upload: throttle.AllowAll, Key: panics},
		"tenant": {Upload: throttle.AllowAll, Tenant: panics},
	} {
		body := &closeCounter{Reader: zeros{}}
		req := newRequest(http.MethodPost)
		req.Body = body
		require.PanicsWithValue(t, "oops", func() { rt.RoundTrip(req) }, name)
		require.EqualValues(t, 1, body.closed.Load(), name)
	}
}

func TestTransport_closesTheBodyOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) }))
		defer s.Close()
		rt := &bandwidth.Transport{Base: s.Transport(), Upload: newBucket(1000)}
		body := &closeCounter{Reader: zeros{}}
		req, err := http.NewRequest(http.MethodPost, s.URL, body)
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
		resp.Body.Close()
		time.Sleep(time.Second) // until the next chunk finds the connection closed
		require.EqualValues(t, 1, body.closed.Load())
	})
}

// TestTransport_beneathHeedPacesEveryAttempt checks that the bodies of retries take units, and
// those of responses that are discarded.
func TestTransport_beneathHeedPacesEveryAttempt(t *testing.T) {
	for name, body := range map[string]func() io.Reader{
		"GetBody":  func() io.Reader { return bytes.NewReader(make([]byte, 1000)) },
		"buffered": func() io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, 1000))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					n, err := io.Copy(io.Discard, r.Body)
					assert.NoError(t, err)
					assert.EqualValues(t, 1000, n)
					if attempts++; attempts < 3 {
						w.WriteHeader(http.StatusServiceUnavailable)
					}
					io.WriteString(w, "0123456789")
				}))
				defer s.Close()
				up, down := &probe{decide: grantAll}, &probe{decide: grantAll}
				client := heed.NewClient(&heed.Transport{Base: &bandwidth.Transport{Base: s.Transport(), Upload: up, Download: down}})
				defer client.CloseIdleConnections()
				req, err := http.NewRequest(http.MethodPut, s.URL, body())
				require.NoError(t, err)
				resp, err := client.Do(req)
				require.NoError(t, err)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				resp.Body.Close()
				synctest.Wait()
				used, open := up.result()
				require.EqualValues(t, 3000, used)
				require.Zero(t, open)
				used, open = down.result()
				require.EqualValues(t, 30, used)
				require.Zero(t, open)
			})
		})
	}
}

// TestTransport_aboveHeedPacesTheCaller checks the other order.
func TestTransport_aboveHeedPacesTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			if attempts++; attempts < 3 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
		defer s.Close()
		up := &probe{decide: grantAll}
		rt := &bandwidth.Transport{Base: &heed.Transport{Base: s.Transport()}, Upload: up}
		defer rt.CloseIdleConnections()
		req, err := http.NewRequest(http.MethodPut, s.URL, bytes.NewReader(make([]byte, 1000)))
		require.NoError(t, err)
		resp, err := rt.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		resp.Body.Close()
		used, _ := up.result()
		require.EqualValues(t, 3000, used, "GetBody of a request is paced too")
	})
}
