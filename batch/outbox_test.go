package batch_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
)

// A rig is a server in memory, and the deliveries of an Outbox that sends to it.
type rig struct {
	*heedtest.Server
	client     *http.Client
	mu         sync.Mutex
	deliveries []string // "ID status" or "ID error"
}

// newRig starts a server in a synctest bubble.
func newRig(t *testing.T, respond func(heedtest.Request) heedtest.Response) *rig {
	r := &rig{Server: &heedtest.Server{Respond: respond}}
	r.StartInMemory()
	t.Cleanup(r.Close)
	r.client = heed.NewClient(&heed.Transport{Base: r.Transport()})
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

func (r *rig) done(d batch.Delivery) batch.Action {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := fmt.Sprint(d.ID)
	if d.Response != nil {
		s += fmt.Sprint(" ", d.Response.StatusCode)
	}
	for _, err := range []error{batch.ErrInterrupted, batch.ErrRejected, batch.ErrExpired} {
		if errors.Is(d.Err, err) {
			s += " " + strings.TrimPrefix(err.Error(), "batch: ")[:8]
		}
	}
	r.deliveries = append(r.deliveries, s)
	return batch.Leave
}

func (r *rig) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.deliveries...)
}

// urls returns the URLs of the requests that the server got, without its own.
func (r *rig) urls() (all []string) {
	for _, req := range r.Requests() {
		all = append(all, req.URL)
	}
	return all
}

// open opens an Outbox with the client and the deliveries of r.
func (r *rig) open(t *testing.T, c batch.OutboxConfig) *batch.Outbox {
	if c.Client == nil {
		c.Client = r.client
	}
	if c.Done == nil {
		c.Done = r.done
	}
	o, err := batch.OpenOutbox(c)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = o.Close(ended) })
	return o
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (r *rig) submit(t *testing.T, o *batch.Outbox, method, path string) uint64 {
	req, err := http.NewRequest(method, r.URL+path, strings.NewReader("body of "+path))
	require.NoError(t, err)
	id, err := o.Submit(req)
	require.NoError(t, err)
	return id
}

func TestOutbox_sendsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		o := r.open(t, batch.OutboxConfig{})
		for i := range 20 {
			require.EqualValues(t, i+1, r.submit(t, o, "POST", fmt.Sprint("/", i)))
		}
		require.NoError(t, o.Drain(t.Context()))
		for i, req := range r.Requests() {
			require.Equal(t, fmt.Sprint("/", i), req.URL)
			require.Equal(t, fmt.Sprint("body of /", i), string(req.Body))
			require.NotEmpty(t, req.Header.Get("Idempotency-Key"))
		}
		require.Equal(t, "20 200", r.got()[19])
		require.Equal(t, batch.OutboxState{}, o.State())
		left, err := o.Close(t.Context())
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

func TestOutbox_addsKeysOnlyWhereTheyMatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		o := r.open(t, batch.OutboxConfig{})
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"} {
			r.submit(t, o, method, "/"+method)
		}
		req, err := http.NewRequest("POST", r.URL+"/own", nil)
		require.NoError(t, err)
		req.Header.Set("X-Idempotency-Key", "own")
		_, err = o.Submit(req)
		require.NoError(t, err)
		require.NoError(t, o.Drain(t.Context()))
		keys := map[string]bool{}
		for i, req := range r.Requests() {
			key := req.Header.Get("Idempotency-Key")
			require.Equal(t, 3 <= i && i < 7, key != "", req.Method)
			keys[key] = true
		}
		require.Len(t, keys, 5)
	})
}

// The server states a wait that is longer than the Transport accepts. The request stays the
// first, and no other one is sent meanwhile.
func TestOutbox_aThrottledRequestKeepsItsPlace(t *testing.T) {
	for _, plain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var n atomic.Int64
			r := newRig(t, func(heedtest.Request) heedtest.Response {
				if n.Add(1) == 2 {
					return heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"1800"}}}
				}
				return heedtest.Response{}
			})
			if plain {
				r.client = r.Client()
				defer r.client.CloseIdleConnections()
			}
			o := r.open(t, batch.OutboxConfig{})
			for i := range 5 {
				r.submit(t, o, "POST", fmt.Sprint("/", i))
			}
			time.Sleep(time.Minute)
			require.Equal(t, []string{"/0", "/1"}, r.urls())
			state := o.State()
			require.Equal(t, 4, state.Requests)
			require.ErrorContains(t, state.LastError, "429")
			require.InDelta(t, 29*time.Minute, time.Until(state.NextTry), float64(time.Minute))
			o.Wake() // does not end a wait that the server stated
			require.NoError(t, o.Drain(t.Context()))
			require.Equal(t, []string{"/0", "/1", "/1", "/2", "/3", "/4"}, r.urls())
			require.GreaterOrEqual(t, r.Requests()[2].At.Sub(r.Requests()[1].At), 30*time.Minute)
			require.Len(t, r.got(), 5)
		})
	}
}

// offline fails as a network without a connection does, while it is set.
type offline struct {
	http.RoundTripper
	is atomic.Bool
}

func (o *offline) RoundTrip(r *http.Request) (*http.Response, error) {
	if o.is.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH}
	}
	return o.RoundTripper.RoundTrip(r)
}

func TestOutbox_keepsRequestsWhileOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		network := &offline{RoundTripper: r.Transport()}
		network.is.Store(true)
		c := batch.OutboxConfig{Client: heed.NewClient(&heed.Transport{Base: network}), MaxAttempts: 1, Path: filepath.Join(t.TempDir(), "outbox"), Backoff: backoff.Constant(10 * time.Minute)}
		defer c.Client.CloseIdleConnections()
		o := r.open(t, c)
		for i := range 5 {
			r.submit(t, o, "POST", fmt.Sprint("/", i))
		}
		time.Sleep(50 * time.Hour) // longer than KeyLifetime: nothing was sent
		require.Equal(t, 5, o.State().Requests)
		require.Error(t, o.State().LastError)
		network.is.Store(false)
		start := time.Now()
		o.Wake()
		require.NoError(t, o.Drain(t.Context()))
		require.Less(t, time.Since(start), time.Second)
		require.Equal(t, []string{"/0", "/1", "/2", "/3", "/4"}, r.urls())
		require.Len(t, r.got(), 5)
	})
}

func TestOutbox_finalResponsesLeave(t *testing.T) {
	for _, tt := range []struct {
		status   int
		header   http.Header
		body     string
		want     string
		requests int
	}{
		{204, nil, "", "1 204", 1},
		{304, nil, "", "1 304", 1},
		{400, nil, "", "1 400 the serv", 1},
		{404, nil, "", "1 404 the serv", 1},
		{429, nil, `{"error":{"code":"insufficient_quota"}}`, "1 429 the serv", 1}, // waiting does not help
		{501, nil, "", "1 501 the serv", 3},
		{500, http.Header{"X-Should-Retry": {"false"}}, "", "1 500 the serv", 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(heedtest.Request) heedtest.Response {
				return heedtest.Response{Status: tt.status, Header: tt.header, Body: tt.body}
			})
			o := r.open(t, batch.OutboxConfig{MaxAttempts: 3, Path: filepath.Join(t.TempDir(), "outbox")})
			r.submit(t, o, "POST", "/")
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			require.NoError(t, o.Drain(ctx), tt.status)
			require.Equal(t, []string{tt.want}, r.got())
			require.Len(t, r.Requests(), tt.requests, tt.status)
		})
	}
}

func TestOutbox_outagesOfTheServerDoNotCount(t *testing.T) {
	for _, status := range []int{408, 425, 429, 502, 503, 504, 522} {
		if testing.Short() && status != 429 && status != 522 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			r := newRig(t, func(heedtest.Request) heedtest.Response {
				if time.Since(start) < 5*time.Hour {
					return heedtest.Response{Status: status}
				}
				return heedtest.Response{}
			})
			o := r.open(t, batch.OutboxConfig{MaxAttempts: 1})
			r.submit(t, o, "POST", "/")
			require.NoError(t, o.Drain(t.Context()))
			require.Equal(t, []string{"1 200"}, r.got(), status)
		})
	}
}

func TestOutbox_requestsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(heedtest.Request) heedtest.Response { return heedtest.Response{Status: 503} })
		o := r.open(t, batch.OutboxConfig{MaxAge: time.Hour})
		r.submit(t, o, "POST", "/")
		start := time.Now()
		require.NoError(t, o.Drain(t.Context()))
		require.InDelta(t, 60, time.Since(start).Minutes(), 5)
		require.Equal(t, []string{"1 the requ"}, r.got())
	})
}

func TestOutbox_isBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(heedtest.Request) heedtest.Response { return heedtest.Response{Delay: time.Minute} })
		o := r.open(t, batch.OutboxConfig{MaxRequests: 3, MaxBody: 100})
		for i := range 3 {
			r.submit(t, o, "POST", fmt.Sprint("/", i))
		}
		submit := func(o *batch.Outbox, body string) error {
			req, err := http.NewRequest("POST", r.URL, strings.NewReader(body))
			require.NoError(t, err)
			_, err = o.Submit(req)
			return err
		}
		err := submit(o, "")
		var full *batch.FullError
		require.ErrorAs(t, err, &full)
		require.ErrorIs(t, err, batch.ErrOutboxFull)
		require.Equal(t, 3, full.Requests)
		require.Equal(t, 3, full.MaxRequests)
		require.Positive(t, full.Bytes)
		time.Sleep(61 * time.Second)
		require.NoError(t, submit(o, strings.Repeat("x", 100)))
		require.ErrorIs(t, submit(o, strings.Repeat("x", 101)), batch.ErrBodyTooLarge)

		o = r.open(t, batch.OutboxConfig{MaxBytes: 1000})
		require.NoError(t, submit(o, strings.Repeat("x", 500)))
		require.ErrorIs(t, submit(o, strings.Repeat("x", 500)), batch.ErrOutboxFull)
		require.ErrorIs(t, submit(o, strings.Repeat("x", 5000)), batch.ErrOutboxFull)
		require.NoError(t, o.Drain(t.Context()))
		require.NoError(t, submit(o, strings.Repeat("x", 500)))
	})
}

func TestOutbox_rejectsWhatItCannotSend(t *testing.T) {
	dir := t.TempDir()
	o, err := batch.OpenOutbox(batch.OutboxConfig{Path: filepath.Join(dir, "outbox")})
	require.NoError(t, err)
	defer o.Close(ended)
	newRequest := func(method, url string) *http.Request {
		req, err := http.NewRequest(method, url, nil)
		require.NoError(t, err)
		return req
	}
	for _, url := range []string{"ftp://a.test/", "/path", "http:///path", ""} {
		_, err := o.Submit(newRequest("POST", url))
		require.ErrorIs(t, err, batch.ErrInvalidRequest, url)
	}
	_, err = o.Submit(&http.Request{})
	require.ErrorIs(t, err, batch.ErrInvalidRequest)
	bad := newRequest("POST", "http://a.test")
	bad.Method = "NOT A METHOD"
	_, err = o.Submit(bad)
	require.ErrorIs(t, err, batch.ErrInvalidRequest)
	_, err = o.Submit(newRequest("CONNECT", "http://a.test"))
	require.ErrorIs(t, err, batch.ErrInvalidRequest)
	bad = newRequest("POST", "http://a.test")
	bad.Trailer = http.Header{"X-Sum": nil}
	_, err = o.Submit(bad)
	require.ErrorIs(t, err, batch.ErrInvalidRequest)

	fault := errors.New("fault")
	closed := false
	bad = newRequest("POST", "http://a.test")
	bad.Body = &body{read: func([]byte) (int, error) { return 0, fault }, closed: &closed}
	_, err = o.Submit(bad)
	require.ErrorIs(t, err, fault)
	require.True(t, closed)

	for _, name := range []string{"Authorization", "Cookie", "X-Api-Key", "x-api-key", "Private-Token", "X-Goog-Api-Key"} {
		req := newRequest("POST", "http://a.test")
		req.Header[name] = []string{"secret"}
		_, err := o.Submit(req)
		require.ErrorIs(t, err, batch.ErrCredentials)
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "secret")
	}
	_, err = o.Submit(newRequest("POST", "http://user:secret@a.test"))
	require.ErrorIs(t, err, batch.ErrCredentials)
	req := newRequest("POST", "http://a.test") // JSON would change it
	req.Header.Set("X-Name", "caf\xe9")
	_, err = o.Submit(req)
	require.ErrorIs(t, err, batch.ErrInvalidRequest)
	_, err = o.Submit(newRequest("POST", "http://a.test/?name=caf\xe9"))
	require.ErrorIs(t, err, batch.ErrInvalidRequest)
	content, err := os.ReadFile(filepath.Join(dir, "outbox"))
	require.NoError(t, err)
	require.NotContains(t, string(content), "secret")
	require.Zero(t, o.State().Requests)

	for _, c := range []batch.OutboxConfig{{MaxRequests: -1}, {MaxBytes: -1}, {MaxBody: -1}, {MaxAttempts: -1}, {MaxAge: -1}} {
		_, err := batch.OpenOutbox(c)
		require.ErrorContains(t, err, "batch: OutboxConfig.")
	}
}

// A body is a request body.
type body struct {
	read   func([]byte) (int, error)
	closed *bool
}

func (b *body) Read(p []byte) (int, error) { return b.read(p) }
func (b *body) Close() error {
	*b.closed = true
	return nil
}

func TestOutbox_onDiskSendsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		network := &offline{RoundTripper: r.Transport()}
		network.is.Store(true)
		down := heed.NewClient(&heed.Transport{Base: network})
		path := filepath.Join(t.TempDir(), "outbox")
		o := r.open(t, batch.OutboxConfig{Path: path, Client: down, StoreCredentials: true})
		options := heed.RequestOptions{Priority: 3, Tenant: "t", QuotaName: "q", Costs: map[string]int64{"tokens": 5}}
		req, err := http.NewRequestWithContext(heed.WithOptions(t.Context(), options), "PATCH", r.URL+"/a?b=c#d", strings.NewReader("body\x00\xff"))
		require.NoError(t, err)
		req.Header = http.Header{"X-A": {"1", "2"}, "Authorization": {"secret"}}
		req.Host = "other.test"
		_, err = o.Submit(req)
		require.NoError(t, err)
		r.submit(t, o, "POST", "/second")
		require.ErrorIs(t, locked(path), batch.ErrLocked)
		left, err := o.Close(t.Context())
		require.NoError(t, err)
		require.Len(t, left, 2)
		require.EqualValues(t, 1, left[0].ID)
		require.False(t, left[0].Sent)
		require.Equal(t, options, heed.OptionsFrom(left[0].Request.Context()))
		_, err = o.Submit(req)
		require.ErrorIs(t, err, batch.ErrOutboxClosed)
		require.ErrorIs(t, o.Drain(t.Context()), batch.ErrOutboxClosed)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm())

		network.is.Store(false)
		start := time.Now()
		down = heed.NewClient(&heed.Transport{Base: network, StartJitter: time.Minute, StartSeed: "device 1"})
		defer down.CloseIdleConnections()
		o = r.open(t, batch.OutboxConfig{Path: path, Client: down})
		require.NoError(t, o.Drain(t.Context()))
		require.Greater(t, time.Since(start), time.Second, "the start delay of the Transport")
		require.EqualValues(t, 3, r.submit(t, o, "POST", "/third"))
		require.NoError(t, o.Drain(t.Context()))
		got := r.Requests()
		require.Equal(t, []string{"/a?b=c", "/second", "/third"}, r.urls())
		require.Equal(t, "PATCH", got[0].Method)
		require.Equal(t, "other.test", got[0].Host)
		require.Equal(t, "body\x00\xff", string(got[0].Body))
		require.Equal(t, []string{"1", "2"}, got[0].Header["X-A"])
		require.Equal(t, "secret", got[0].Header.Get("Authorization"))
		require.Equal(t, left[0].Request.Header.Get("Idempotency-Key"), got[0].Header.Get("Idempotency-Key"))
	})
}

// locked returns the error of opening the file of an Outbox.
func locked(path string) error {
	o, err := batch.OpenOutbox(batch.OutboxConfig{Path: path})
	if err == nil {
		o.Close(ended)
	}
	return err
}

// TestOutbox_afterAKill opens copies of the file that were made while a request was in
// flight, as a process that was killed leaves it.
func TestOutbox_afterAKill(t *testing.T) {
	for _, tt := range []struct {
		name    string
		method  string
		unkeyed bool
		plain   bool // the client has no heed.Transport
		first   heedtest.Response
		after   time.Duration // time until the file is opened again
		want    []string
		sent    int // requests that the server gets after the kill
	}{
		{name: "with key", method: "POST", want: []string{"1 200"}, sent: 1},
		{name: "with key, too late", method: "POST", after: 25 * time.Hour, want: []string{"1 interrup"}},
		{name: "without key", method: "POST", unkeyed: true, want: []string{"1 interrup"}},
		{name: "without key, plain client", method: "POST", unkeyed: true, plain: true, want: []string{"1 interrup"}},
		{name: "with key, plain client", method: "POST", plain: true, want: []string{"1 200"}, sent: 1},
		{name: "GET", method: "GET", after: 25 * time.Hour, want: []string{"1 200"}, sent: 1},
		{name: "PUT without key", method: "PUT", unkeyed: true, want: []string{"1 200"}, sent: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			path, copied := filepath.Join(t.TempDir(), "outbox"), filepath.Join(t.TempDir(), "copy")
			r := newRig(t, func(req heedtest.Request) heedtest.Response {
				if req.N == 1 { // the process is killed now
					content, _ := os.ReadFile(path)
					_ = os.WriteFile(copied, content, 0o600)
				}
				return tt.first
			})
			c := batch.OutboxConfig{Path: path}
			if tt.plain {
				c.Client = &http.Client{Transport: r.Transport()}
				defer c.Client.CloseIdleConnections()
			}
			if tt.unkeyed {
				c.IdempotencyKey = func(*http.Request) string { return "" }
			}
			o := r.open(t, c)
			r.submit(t, o, tt.method, "/")
			require.NoError(t, o.Drain(t.Context()))
			before := len(r.Requests())
			require.Equal(t, []string{"1 200"}, r.got(), tt.name)

			time.Sleep(tt.after)
			r.deliveries = nil
			c.Path = copied
			o = r.open(t, c)
			require.NoError(t, o.Drain(t.Context()))
			require.Equal(t, tt.want, r.got(), tt.name)
			all := r.Requests()
			require.Len(t, all, before+tt.sent, tt.name)
			require.Equal(t, all[0].Header.Get("Idempotency-Key"), all[len(all)-1].Header.Get("Idempotency-Key"))
		})
	}
}

// A request without an Idempotency-Key is sent again as long as it was not processed.
func TestOutbox_withoutAKeyIsSentOnce(t *testing.T) {
	for _, tt := range []struct {
		name  string
		first heedtest.Response
		want  string
		sent  int
	}{
		{"accepted", heedtest.Response{}, "1 200", 1},
		{"throttled", heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"1000"}}}, "1 200", 2},
		{"unavailable", heedtest.Response{Status: 503, Header: http.Header{"Retry-After": {"1000"}}}, "1 200", 2},
		{"no response", heedtest.Response{Fault: heedtest.Drop}, "1 interrup", 1},
		{"error", heedtest.Response{Status: 500}, "1 500 interrup", 1},
		{"gateway", heedtest.Response{Status: 502}, "1 502 interrup", 1},
		{"rejected", heedtest.Response{Status: 400}, "1 400 the serv", 1},
	} {
		for _, path := range []string{"", filepath.Join(t.TempDir(), "outbox")} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, heedtest.Script(tt.first))
				o := r.open(t, batch.OutboxConfig{Path: path, IdempotencyKey: func(*http.Request) string { return "" }})
				r.submit(t, o, "POST", "/")
				require.NoError(t, o.Drain(t.Context()))
				require.Equal(t, []string{tt.want}, r.got(), tt.name)
				require.Len(t, r.Requests(), tt.sent, tt.name)
				left, err := o.Close(t.Context())
				require.NoError(t, err)
				require.Empty(t, left)
			})
			_ = os.Remove(path)
		}
	}
}

// After a kill the server may still process the first attempt, and answers 409.
func TestOutbox_waitsForAnEarlierAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, heedtest.Script(heedtest.Response{Fault: heedtest.Drop}, heedtest.Response{Status: 409}, heedtest.Response{Status: 409}))
		client := heed.NewClient(&heed.Transport{Base: r.Transport(), Retry: &heed.RetryPolicy{MaxAttempts: 1}})
		defer client.CloseIdleConnections()
		o := r.open(t, batch.OutboxConfig{Client: client})
		r.submit(t, o, "POST", "/")
		require.NoError(t, o.Drain(t.Context()))
		require.Equal(t, []string{"1 200"}, r.got())
	})
}

func TestOutbox_closeWaitsForTheRequestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(heedtest.Request) heedtest.Response { return heedtest.Response{Delay: 10 * time.Second} })
		path := filepath.Join(t.TempDir(), "outbox")
		o := r.open(t, batch.OutboxConfig{Path: path})
		for i := range 3 {
			r.submit(t, o, "POST", fmt.Sprint("/", i))
		}
		time.Sleep(time.Second)
		drained := make(chan error, 1)
		go func() { drained <- o.Drain(context.Background()) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, o.Drain(ctx), context.DeadlineExceeded)
		left, err := o.Close(t.Context())
		require.NoError(t, err)
		require.Len(t, left, 2)
		require.Equal(t, []string{"1 200"}, r.got())
		require.ErrorIs(t, <-drained, batch.ErrOutboxClosed)

		o = r.open(t, batch.OutboxConfig{Path: path})
		time.Sleep(time.Second)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		left, err = o.Close(ctx) // cancels it
		require.NoError(t, err)
		require.Len(t, left, 2)
		require.True(t, left[0].Sent)
		require.False(t, left[1].Sent)
		again, err := o.Close(t.Context())
		require.NoError(t, err)
		require.Len(t, again, 2)

		o = r.open(t, batch.OutboxConfig{Path: path})
		require.NoError(t, o.Drain(t.Context()))
		require.Len(t, r.got(), 3)
	})
}

func TestOutbox_theFileStaysSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		path := filepath.Join(t.TempDir(), "outbox")
		o := r.open(t, batch.OutboxConfig{Path: path})
		for range 300 {
			req, err := http.NewRequest("POST", r.URL, strings.NewReader(strings.Repeat("x", 10_000)))
			require.NoError(t, err)
			_, err = o.Submit(req)
			require.NoError(t, err)
			require.NoError(t, o.Drain(t.Context()))
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Less(t, info.Size(), int64(300_000))
		}
		_, err := o.Close(t.Context())
		require.NoError(t, err)
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Less(t, len(content), 100, "bodies of delivered requests are left")
		o = r.open(t, batch.OutboxConfig{Path: path})
		require.EqualValues(t, 301, r.submit(t, o, "POST", "/"))
	})
}

func TestOutbox_concurrentCalls(t *testing.T) {
	for _, path := range []string{"", filepath.Join(t.TempDir(), "outbox")} {
		server := new(heedtest.Server)
		server.Start()
		var delivered atomic.Int64
		client := heed.NewClient(&heed.Transport{Base: server.Transport()})
		o, err := batch.OpenOutbox(batch.OutboxConfig{Path: path, Client: client, Done: func(batch.Delivery) batch.Action { delivered.Add(1); return batch.Leave }})
		require.NoError(t, err)
		var all sync.WaitGroup
		var accepted atomic.Int64
		for range 20 {
			all.Go(func() {
				for range 20 {
					req, _ := http.NewRequest("POST", server.URL, strings.NewReader(strings.Repeat("x", 2000)))
					if _, err := o.Submit(req); err == nil {
						accepted.Add(1)
					}
					o.Wake()
					o.State()
				}
			})
		}
		all.Go(func() { _ = o.Drain(t.Context()) })
		all.Wait()
		left, err := o.Close(ended)
		require.NoError(t, err)
		require.EqualValues(t, accepted.Load(), delivered.Load()+int64(len(left)))
		server.Close()
		client.CloseIdleConnections()
	}
}

func TestOutbox_doneMaySubmitAndReadTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(heedtest.Request) heedtest.Response { return heedtest.Response{Body: "response"} })
		var o *batch.Outbox
		var bodies []string
		o = r.open(t, batch.OutboxConfig{Done: func(d batch.Delivery) batch.Action {
			text, err := io.ReadAll(d.Response.Body)
			bodies = append(bodies, string(text), fmt.Sprint(err, d.Err))
			if d.ID < 3 {
				_, _ = o.Submit(d.Request)
			}
			return batch.Leave
		}})
		r.submit(t, o, "POST", "/")
		for range 3 {
			require.NoError(t, o.Drain(t.Context()))
		}
		require.Len(t, r.Requests(), 3)
		require.Equal(t, "response", bodies[0])
		require.Equal(t, "<nil> <nil>", bodies[1])
	})
}

// A limit that can never admit a request must not hold back those behind it for good.
func TestOutbox_aRequestThatNoLimitAdmitsLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		client := heed.NewClient(&heed.Transport{Base: r.Transport(), Limiter: throttle.NewTokenBucket(throttle.PerSecond(10).WithBurst(10))})
		defer client.CloseIdleConnections()
		o := r.open(t, batch.OutboxConfig{Client: client})
		ctx := heed.WithOptions(t.Context(), heed.RequestOptions{Cost: 100})
		req, err := http.NewRequestWithContext(ctx, "POST", r.URL, nil)
		require.NoError(t, err)
		_, err = o.Submit(req)
		require.NoError(t, err)
		r.submit(t, o, "POST", "/")
		require.NoError(t, o.Drain(t.Context()))
		require.Equal(t, []string{"1 the serv", "2 200"}, r.got())
	})
}

func TestOutbox_theFileStaysSmallWhileOffline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		network := &offline{RoundTripper: r.Transport()}
		network.is.Store(true)
		client := heed.NewClient(&heed.Transport{Base: network, Retry: &heed.RetryPolicy{MaxAttempts: 1}})
		path := filepath.Join(t.TempDir(), "outbox")
		o := r.open(t, batch.OutboxConfig{Path: path, Client: client, Backoff: backoff.Constant(time.Second)})
		r.submit(t, o, "POST", "/")
		time.Sleep(5000 * time.Second)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Less(t, info.Size(), int64(300_000))
		require.Greater(t, info.Size(), int64(300))
		require.Equal(t, 1, o.State().Requests)
	})
}

// A body that does not end delays no later request.
func TestOutbox_aBodyWithoutEndDelaysNothing(t *testing.T) {
	for _, plain := range []bool{false, true} {
		for _, status := range []int{http.StatusOK, http.StatusServiceUnavailable} {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, func(req heedtest.Request) heedtest.Response {
					if req.URL == "/hangs" && req.N <= 6 {
						return heedtest.Response{Status: status, Body: "response", Fault: heedtest.HangBody}
					}
					return heedtest.Response{}
				})
				if plain {
					r.client = r.Client()
					defer r.client.CloseIdleConnections()
				}
				o := r.open(t, batch.OutboxConfig{})
				r.submit(t, o, "POST", "/hangs")
				r.submit(t, o, "POST", "/next")
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				require.NoError(t, o.Drain(ctx))
				require.Equal(t, []string{"1 200", "2 200"}, r.got())
			})
		}
	}
}

// A server that states an end in the far future is asked again after a day.
func TestOutbox_asksAgainBeforeAStatedEndThatIsFarAway(t *testing.T) {
	for _, plain := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, heedtest.Script(heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"31000000"}}}))
			var requests atomic.Int64
			r.Key = func(*http.Request) string { return fmt.Sprint(requests.Add(1)) } // it does not insist on what it states
			if plain {
				r.client = r.Client()
				defer r.client.CloseIdleConnections()
			}
			o := r.open(t, batch.OutboxConfig{})
			r.submit(t, o, "POST", "/")
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 100*24*time.Hour)
			defer cancel()
			require.NoError(t, o.Drain(ctx))
			require.Equal(t, []string{"1 200"}, r.got())
			require.GreaterOrEqual(t, time.Since(start), 24*time.Hour)
			require.Less(t, time.Since(start), 25*time.Hour)
		})
	}
}

// A power failure must not make a request count as never sent, as its key is forgotten later, nor
// as sent if it was not.
func TestOutbox_whatWasSentIsOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "outbox")
		var onDisk []int64 // how much of the file was on disk, as the first frame after each event states
		frames := func() (ends []int64) {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			for at := int64(8); at < int64(len(content)) && content[at] != 0; { // zeros are a reserve for later records
				onDisk = append(onDisk, int64(binary.LittleEndian.Uint64(content[at+8:])))
				at += 24 + int64(binary.LittleEndian.Uint32(content[at+4:]))
				ends = append(ends, at)
			}
			return ends
		}
		r := newRig(t, nil)
		network := &offline{RoundTripper: r.Transport()}
		network.is.Store(true)
		client := heed.NewClient(&heed.Transport{Base: network, Retry: &heed.RetryPolicy{MaxAttempts: 1}})
		defer client.CloseIdleConnections()
		o := r.open(t, batch.OutboxConfig{Path: path, Client: client, Backoff: backoff.Constant(time.Second)})
		r.submit(t, o, "POST", "/")
		time.Sleep(500 * time.Millisecond)
		network.is.Store(false)
		require.NoError(t, o.Drain(t.Context()))
		ends := frames() // the header, the request, that it will be sent, that it was not, that it will be sent, that it has left
		require.Len(t, ends, 6)
		require.Equal(t, []int64{8, ends[0], ends[1], ends[2], ends[3], ends[4]}, onDisk)
	})
}

func TestOutbox_backoffThatStopsDoesNotStopIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, heedtest.Script(heedtest.Response{Status: 503}, heedtest.Response{Status: 503}))
		client := heed.NewClient(&heed.Transport{Base: r.Transport(), Retry: &heed.RetryPolicy{MaxAttempts: 1}})
		defer client.CloseIdleConnections()
		o := r.open(t, batch.OutboxConfig{Client: client, Backoff: stopPolicy{}})
		r.submit(t, o, "POST", "/")
		start := time.Now()
		require.NoError(t, o.Drain(t.Context()))
		require.Equal(t, 2*time.Minute, time.Since(start))
	})
}

type stopPolicy struct{}

func (stopPolicy) Delay(int, time.Duration) time.Duration { return backoff.Stop }

func TestOpenOutbox_rejectsOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("my thesis"), 0o600))
	require.ErrorIs(t, locked(path), batch.ErrDamaged)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "my thesis", string(content))

	checkpoint := checkpointIn(t)
	_, err = batch.Run(t.Context(), upTo(1), func(context.Context, int) error { return nil }, batch.Options{Checkpoint: checkpoint})
	require.NoError(t, err)
	require.ErrorIs(t, locked(checkpoint), batch.ErrDamaged)
	outbox := filepath.Join(t.TempDir(), "outbox")
	require.NoError(t, locked(outbox))
	_, err = batch.Run(t.Context(), upTo(1), nil, batch.Options{Checkpoint: outbox})
	require.ErrorIs(t, err, batch.ErrDamaged)
}
