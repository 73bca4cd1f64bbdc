package bandwidth

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A Transport is an http.RoundTripper that paces the bodies of requests and responses.
//
// The body of a 101 response is a connection: it is paced in both directions, also after
// the end of the request's context, which does not end the connection either.
//
// A Transport is safe for concurrent use. Its fields must not be changed after the first
// request, and it must not be copied after that. See the package comment for its place
// beside a heed.Transport.
type Transport struct {
	// Base sends the requests. Nil means http.DefaultTransport.
	Base http.RoundTripper

	// Upload must grant each byte of a request body before it is sent. Nil means that request
	// bodies are not paced; they are then passed to Base as they are.
	//
	// If Upload or Download returns an error, for example because its store cannot be
	// reached, the stream ends with that error. A limiter of throttle.NewFallback prevents that.
	Upload throttle.Limiter

	// Download must grant each byte of a response body before Read returns it. Nil means that
	// response bodies are not paced; they are then returned as they are. It may be the same
	// limiter as Upload, which then limits the sum of both directions.
	Download throttle.Limiter

	// Key returns the throttle.Claim.Key of a request, such as its host: heed.PerHost does.
	// Only limiters with a limit for each key use it, such as those of package
	// throttle/keyed. Key is called once per request and must not modify the request. Nil
	// means that all requests have the key "".
	Key func(*http.Request) string

	// Tenant returns the name of the tenant that a stream is for, such as a customer. Tenants
	// that wait for the same limit share it evenly, however many streams they have. It is
	// called once per request and must not modify the request. Nil, and an empty result, mean
	// that each stream is a tenant of its own, so that a client with many streams gets many
	// shares. Return a name that was authenticated: with invented ones it gets as many.
	Tenant func(*http.Request) string

	// Queue is where streams wait. Share it between Transports and Middlewares that share a
	// limiter, so that their streams share the limiter evenly. A wait that would be longer
	// than Queue.MaxWait ends with a *throttle.RejectedError. Nil means a Queue that is used by
	// this Transport alone, with a MaxWait of 1 minute.
	Queue *queue.Queue

	own ownQueue
}

// RoundTrip sends req, whose body is paced by Upload, and returns a response whose body is
// paced by Download. It implements http.RoundTripper.
//
// An error of a Read of the response is that of Base; the cause of the request's context; a
// *throttle.RejectedError, wrapped, if the wait would be longer than Queue.MaxWait or than
// the deadline of the context allows, which then matches context.DeadlineExceeded; the
// error of a limiter; or one that matches ErrNeverGranted. If one of them ends the body of a
// request, Base returns it as the error of the request.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if t.Upload == nil && t.Download == nil {
		return base.RoundTrip(req)
	}
	s := t.settings(req)
	resp, err := base.RoundTrip(s.requestFor(req, t.Upload))
	if err != nil || resp == nil {
		return resp, err
	}
	s.paceResponse(req.Context(), resp, t.Upload, t.Download)
	return resp, nil
}

// settings calls Key and Tenant. It closes the body of req if one of them panics.
func (t *Transport) settings(req *http.Request) (s settings) {
	returned := false
	defer func() {
		if !returned && req.Body != nil {
			req.Body.Close()
		}
	}()
	s = settingsOf(req, t.Key, t.Tenant, t.own.orDefault(t.Queue))
	returned = true
	return s
}

// CloseIdleConnections closes the idle connections of Base, if Base has such a method.
// http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	if b, ok := base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// An ownQueue is the queue of a Transport or Middleware whose field Queue is nil.
type ownQueue struct {
	once  sync.Once
	queue *queue.Queue
}

// defaultMaxWait is Queue.MaxWait of an ownQueue.
const defaultMaxWait = time.Minute

func (o *ownQueue) orDefault(q *queue.Queue) *queue.Queue {
	if q != nil {
		return q
	}
	o.once.Do(func() { o.queue = &queue.Queue{MaxWait: defaultMaxWait} })
	return o.queue
}

// settings are what the streams of one request have in common.
type settings struct {
	key, tenant string
	queue       *queue.Queue
}

func settingsOf(r *http.Request, key, tenant func(*http.Request) string, q *queue.Queue) settings {
	s := settings{queue: q}
	if key != nil {
		s.key = key(r)
	}
	if tenant != nil {
		s.tenant = tenant(r)
	}
	return s
}

// numStreams is the number of streams that were named by streamTenant.
var numStreams atomic.Uint64

// stream returns a new stream. It returns nil if l is nil.
func (s settings) stream(ctx context.Context, l throttle.Limiter) *stream {
	if l == nil {
		return nil
	}
	tenant := s.tenant
	if tenant == "" {
		tenant = "stream " + strconv.FormatUint(numStreams.Add(1), 10)
	}
	return newStream(ctx, l, s.key, tenant, s.queue)
}

// duplex returns the streams of a connection, which outlives the request of ctx.
func (s settings) duplex(ctx context.Context, in, out throttle.Limiter) *duplex {
	ctx = context.WithoutCancel(ctx)
	return &duplex{in: s.stream(ctx, in), out: s.stream(ctx, out), reading: newLock(), writing: newLock()}
}

// body returns b, paced by l. It returns b itself if there is nothing to pace.
func (s settings) body(ctx context.Context, b io.ReadCloser, l throttle.Limiter) io.ReadCloser {
	if !canPace(b, l) {
		return b
	}
	return &body{ReadCloser: b, stream: s.stream(ctx, l)}
}

func canPace(b io.ReadCloser, l throttle.Limiter) bool {
	return l != nil && b != nil && b != http.NoBody
}

// requestFor returns req, or a copy of req whose body is paced by l.
func (s settings) requestFor(req *http.Request, l throttle.Limiter) *http.Request {
	if !canPace(req.Body, l) {
		return req
	}
	r := *req
	r.Body = s.body(req.Context(), req.Body, l)
	if getBody := req.GetBody; getBody != nil {
		r.GetBody = func() (io.ReadCloser, error) {
			b, err := getBody()
			if err != nil {
				return b, err
			}
			return s.body(req.Context(), b, l), nil
		}
	}
	return &r
}

// paceResponse replaces the body of resp.
func (s settings) paceResponse(ctx context.Context, resp *http.Response, upload, download throttle.Limiter) {
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = s.body(ctx, resp.Body, download)
		return
	}
	b := &upgradedBody{conn, s.duplex(ctx, download, upload)}
	if _, ok := conn.(closeWriter); ok {
		resp.Body = halfClosingBody{b}
	} else {
		resp.Body = b
	}
}
