package heed

import (
	"cmp"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/quotalink"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"golang.org/x/net/http/httpguts"
)

// A Transport is an http.RoundTripper that limits, queues and retries requests.
//
// Before each attempt it waits until every limit grants the request: those of the program (Limiter, Limits) and those
// of the server (Quota), which it learns from each response. It retries failed attempts as Retry and RetryFor allow.
//
// The zero Transport has no limits of its own, and retries where that is safe, see RetryPolicy.
//
// A Transport is safe for concurrent use. Its fields must not be changed after the first
// request, and it must not be copied after that. Callers of the same servers should share
// one Transport, or several Transports with the same Quota and Queue.
//
// Only the end of its context ends a call; http.Client.Timeout sets its deadline.
// Request.Cancel ends at most an attempt in flight, if Base obeys it.
//
// If a limiter returns an error, for example because its store cannot be reached, nothing is
// sent: RoundTrip returns that error or, before a retry, the last response. A Limiter of
// throttle.NewFallback asks another one then, such as a local limiter or throttle.AllowAll.
type Transport struct {
	// Base sends the requests. Nil means http.DefaultTransport.
	Base http.RoundTripper

	// Limiter must grant every attempt, including retries. Each attempt costs
	// RequestOptions.Cost units. Nil means no limit.
	Limiter throttle.Limiter

	// Key returns the key of a request for Limiter, such as its host: PerHost does. Only limiters with a limit for each
	// key use it, such as those of package throttle/keyed. Key is called once per request and must not modify the
	// request. Errors name the key, so a secret should be hashed, as the functions of package throttlehttp do. Nil
	// means that all requests have the key "", and so share one limit.
	Key func(*http.Request) string

	// Limits adds demands to the ticket of a request and may set its Priority, Tenant and Weight. It is called once per
	// request, before the first attempt. It must not modify the request, and must not retain the ticket, which is
	// reused. After an error nothing is sent: RoundTrip returns an error that wraps it. Nil means no further limits.
	//
	// A request that needs more units of one Limiter than it has fails immediately. It waits until its deadline if a
	// wrapper hides that its demands have one Limiter, or if Base is a Transport that needs the other units.
	Limits func(*http.Request, *queue.Ticket) error

	// Quota holds the known limits of servers. Nil means a Tracker of this Transport alone.
	Quota *quota.Tracker

	// Queue is where requests wait. Transports that share limits should share it, so that
	// requests are served in order. Nil means a Queue of this Transport alone.
	Queue *queue.Queue

	// Retry decides which attempts are retried, and when. Nil means the zero RetryPolicy.
	Retry *RetryPolicy

	// RetryFor returns the policy of a request, for example by its host or route. Nil, and a nil result, mean Retry.
	// The policy replaces Retry as a whole: its zero fields have their defaults, but a nil Budget means that of Retry.
	// RetryFor must not modify the request and must not block.
	RetryFor func(*http.Request) *RetryPolicy

	// Breaker returns the circuit breaker for a request, which must not be modified. The breaker is asked once per
	// attempt, before RetryPolicy.BeforeSend: when the request begins to wait in the queue, or is granted without
	// a wait. A request that waits keeps the permission. Nil, and a nil result, mean no breaker.
	Breaker func(*http.Request) Breaker

	// Trace holds functions that are called while requests are processed. JoinTraces
	// combines several, and WithTrace adds one for a single request. Nil means none.
	Trace *Trace

	// Clock is the source of time and of timers for waits and delays, also of a nil Quota and Queue. Nil means the
	// system clock. That clock always applies to deadlines of contexts, to RetryPolicy.AttemptTimeout, to MaxWait and
	// MaxElapsed while a request is in the queue, to a BeforeSend that is slow, and to reading and closing bodies.
	Clock throttle.Clock

	// StartJitter spreads the first requests of programs that start at the same time: all wait
	// until a random time below StartJitter after the first. Zero or less means no delay.
	StartJitter time.Duration

	// StartSeed determines the delay of StartJitter, so that it is the same after each start. It must differ between
	// programs, as the serial number of a device does. See backoff.OffsetFor. Empty means a random delay.
	StartSeed string

	once           sync.Once
	resolved       resolved
	unlimitedCalls atomic.Uint64 // calls without limits, counted for the retry budget

	startOnce   sync.Once
	startAt     time.Time   // when the delay of StartJitter ends; set by startOnce
	startPassed atomic.Bool // whether startAt has passed
}

// resolved holds the settings of a Transport with defaults for nil fields.
type resolved struct {
	base       http.RoundTripper
	quota      *quota.Tracker
	feedback   quotalink.Tracker // the methods of quota that it does not export
	events     *quota.Events     // the Tracker calls them; nil if Trace has no Hold and no LimitLearned
	queue      *queue.Queue
	trace      *Trace
	retry      RetryPolicy
	clock      throttle.Clock
	openBodies openBodies
}

// NewClient returns an http.Client that sends its requests through t. If t is nil, the client uses a new zero
// Transport. The client follows redirects like any http.Client; each redirect is a separate request to t.
//
// A Timeout of the client limits a call with all its redirects, attempts, delays and time
// in the queue. RetryPolicy.AttemptTimeout limits one attempt.
func NewClient(t *Transport) *http.Client {
	if t == nil {
		t = new(Transport)
	}
	return &http.Client{Transport: t}
}

// RoundTrip waits until every limit grants the request, sends it, reports the outcome to
// the limits, and retries it if the policy allows. It implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, invalidRequestError("heed: the request is nil")
	}
	t.resolve()
	if err := validateRequest(req); err != nil {
		closeBody(req.Body)
		return nil, err
	}
	rt := roundTripPool.Get().(*roundTrip)
	rt.t, rt.req = t, req
	defer rt.end()
	resp, err := rt.run()
	if f := rt.trace.Done; f != nil {
		f(req, rt.doneInfo(resp, err))
	}
	rt.handOver(resp)
	return resp, err
}

// run sends attempts until one is final, and returns its response or error.
func (rt *roundTrip) run() (*http.Response, error) {
	t := rt.t
	rt.begin()
	if t.Limits != nil || t.Limiter != nil {
		if err := rt.addDemands(); err != nil {
			return rt.fail(err)
		}
	}
	if t.StartJitter > 0 && !t.startPassed.Load() {
		if err := rt.waitForStart(); err != nil {
			return rt.fail(err)
		}
	}
	for {
		if err := rt.acquire(); err != nil {
			return rt.fail(err)
		}
		req, err := rt.prepare()
		if err != nil {
			return rt.fail(err)
		}
		rt.send(req)
		if !rt.shouldRetry() {
			return rt.finish()
		}
		if err := rt.waitForRetry(); err != nil {
			return rt.fail(err)
		}
	}
}

// validateRequest returns an error if req cannot be sent as it is. net/http detects most of these errors too, but only
// after units were taken, and its errors have no type; another Base may not check at all.
//
// The messages begin like those of net/http, because some programs search for that text.
// The values of headers and of the URL may be secret, so the messages contain only names.
//
// Only Base knows the hosts and methods of other schemes, see http.Transport.RegisterProtocol.
func validateRequest(req *http.Request) error {
	u := req.URL
	if u == nil {
		return invalidRequestError("heed: the request has no URL: set Request.URL")
	}
	switch {
	case u.Scheme == "":
		return invalidRequestError(`heed: unsupported protocol scheme "": write http://host/path`)
	case req.Header == nil:
		return invalidRequestError("heed: the request has no Header: make one, it may be empty")
	case u.Scheme != "https" && u.Scheme != "http":
	case u.Host == "":
		return invalidRequestError("heed: the URL has no host: write http://host/path")
	case !isValidHost(req.Host):
		return invalidRequestError("heed: Request.Host has a character that a host cannot have: remove it, or leave Host empty to use the URL's")
	case req.Method != "" && !httpguts.ValidHeaderFieldName(req.Method): // methods and field names are both tokens
		return invalidRequestf("heed: the method %q is not a token: use one like GET", req.Method)
	}
	for i, fields := range [...]http.Header{req.Header, req.Trailer} {
		kind := [...]string{"header", "trailer"}[i]
		for name, values := range fields {
			if !httpguts.ValidHeaderFieldName(name) {
				return invalidRequestf("heed: invalid %s field name %q: remove what is no letter, digit or dash", kind, name)
			}
			for _, v := range values {
				if !httpguts.ValidHeaderFieldValue(v) {
					return invalidRequestf("heed: invalid %s field value for %q: remove control characters such as line breaks", kind, name)
				}
			}
		}
	}
	return nil
}

// isValidHost reports whether net/http can send host in a Host field. It sends the ASCII form of
// an internationalized name.
func isValidHost(host string) bool {
	ascii, err := httpguts.PunycodeHostPort(host)
	return err == nil && httpguts.ValidHostHeader(ascii)
}

// CloseIdleConnections closes the idle connections of Base, if Base has such a method.
// http.Client.CloseIdleConnections calls it.
func (t *Transport) CloseIdleConnections() {
	t.resolve()
	if b, ok := t.resolved.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// resolve fills t.resolved on the first call.
func (t *Transport) resolve() {
	t.once.Do(func() {
		t.resolved = resolved{
			base:  cmp.Or(t.Base, http.DefaultTransport),
			quota: cmp.Or(t.Quota, &quota.Tracker{Clock: t.Clock}),
			queue: cmp.Or(t.Queue, &queue.Queue{Clock: t.Clock}),
			trace: cmp.Or(t.Trace, new(Trace)),
			retry: t.Retry.withDefaults(nil),
			clock: throttle.ClockOr(t.Clock),
		}
		t.resolved.feedback = quotalink.Of(t.resolved.quota)
		t.resolved.quota.Notify(weakQueue{weak.Make(t.resolved.queue)})
		if tr := t.resolved.trace; tr.Hold != nil || tr.LimitLearned != nil {
			t.resolved.events = &quota.Events{Hold: tr.Hold, LimitLearned: tr.LimitLearned}
			t.resolved.quota.Listen(t.resolved.events)
		}
	})
}

// Parts are what a Transport uses and may share with others. Their Snapshot methods describe
// their state, for a debug page or for metrics.
type Parts struct {
	// Quota is Transport.Quota, or the Tracker of the Transport if that is nil.
	Quota *quota.Tracker

	// Queue is Transport.Queue, or the Queue of the Transport if that is nil.
	Queue *queue.Queue

	// Budget is the Budget of Transport.Retry, or that of the Transport if there is none. The
	// policies that RetryFor returns may have others.
	Budget *backoff.Budget
}

// Parts returns the parts that t uses. They are always the same.
func (t *Transport) Parts() Parts {
	t.resolve()
	r := &t.resolved
	return Parts{Quota: r.quota, Queue: r.queue, Budget: r.retry.Budget}
}

// A weakQueue wakes and renews the waits of a Queue, and does not keep it from being collected, because a Tracker may
// outlive the Transports that use it. See quota.Tracker.Notify.
type weakQueue struct{ weak.Pointer[queue.Queue] }

func (w weakQueue) Alive() bool { return w.Value() != nil }
func (w weakQueue) Wake() {
	if q := w.Value(); q != nil {
		q.Wake()
	}
}

func (w weakQueue) Renew(l throttle.Limiter) {
	if q := w.Value(); q != nil {
		q.Renew(l)
	}
}

// A Breaker stops requests to a server that is down. The TwoStepCircuitBreaker[any] of
// github.com/sony/gobreaker/v2 implements it.
type Breaker interface {
	// Allow returns an error if no request may be sent now. Otherwise it returns a function that must be called with
	// the result of the request: nil if the server works. An error that matches context.Canceled should be ignored,
	// see IsExcluded of gobreaker: the request was canceled, or not sent because its wait or BeforeSend failed.
	Allow() (done func(error), err error)
}
