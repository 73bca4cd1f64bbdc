package heed

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// A Transport is an http.RoundTripper that keeps the limits of the servers it
// talks to, and those that it is given. The zero Transport is a good citizen: it
// learns each server's limits from its answers and sends again what is safe to
// send again. Add a Limiter to throttle yourself.
//
// Its methods may be called by many goroutines at once. Fields must not change
// after the first request, and a Transport must not be copied after it. Share one
// Transport, or one Quota and Waiter between several, among all that call the same
// servers.
//
// If a limiter returns an error, mostly because the store that it asks is down, RoundTrip
// returns that error and sends nothing: a limit that cannot be checked is never exceeded.
// A throttle.Fallback around the limiter decides otherwise: with throttle.Unlimited as its
// Secondary requests are sent without limit, with a local limiter within that one.
type Transport struct {
	Base    http.RoundTripper                     // sends; nil: http.DefaultTransport
	Limiter throttle.Limiter                      // a limit of our own for all requests; nil: none
	Limits  func(*http.Request, *throttle.Ticket) // adds demands and a priority per request; nil: none
	Quota   *quota.Tracker                        // the servers' limits; nil: one of the Transport's own
	Waiter  *throttle.Waiter                      // nil: one of the Transport's own; share it wherever limits are shared
	Retry   *Retry                                // nil: the zero Retry

	// RetryFor returns the policy of a request, for example by its host or route. Nil,
	// or if it returns nil: Retry. A policy without a Budget shares that of Retry. It
	// must not modify the request, nor wait.
	RetryFor func(*http.Request) *Retry

	Breaker func(*http.Request) Breaker // the breaker of a server; nil, or returns nil: none
	Trace   *Trace                      // nil: none
	Clock   throttle.Clock              // nil: the system clock; deadlines of contexts are always on that

	// Splay is for programs that all start at the same time, as at noon: the first
	// request, and those that come meanwhile, wait for a part of it that differs from
	// program to program. Slot is the part: drawn at random if it is 0, or derived
	// with backoff.SplayOf from what tells the programs apart. 0: nobody waits.
	Splay time.Duration
	Slot  backoff.Splay

	once  sync.Once
	own   parts
	calls atomic.Uint64 // that no limit concerned
	start start

	running calling
}

// parts is what a Transport makes for itself where a field is nil.
type parts struct {
	base   http.RoundTripper
	quota  *quota.Tracker
	events *quota.Events // what the Tracker calls; nil: Trace asks for none
	waiter *throttle.Waiter
	trace  *Trace
	retry  Retry
	open   openBodies
}

// RoundTrip implements http.RoundTripper: it stands in line, sends, tells the
// limits what came back, and sends again what may be sent again.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.ready()
	if err := sendable(req, t.own.base); err != nil {
		closeBody(req.Body)
		return nil, err
	}
	c := t.begin(req)
	defer c.end()
	resp, err := c.run()
	c.returned = true
	return resp, err
}

// run sends the attempts of c until one is final.
func (c *call) run() (*http.Response, error) {
	c.choose()
	if err := c.demand(); err != nil {
		return c.refuse(err)
	}
	if t := c.t; t.Splay > 0 && !t.start.open.Load() {
		if err := c.splay(); err != nil {
			return c.abandon(err)
		}
	}
	for {
		attempt, err := c.admit()
		if err != nil {
			return c.abandon(err)
		}
		resp, err := c.send(attempt)
		if !c.again(resp, err) {
			return c.answer()
		}
		if err := c.pause(); err != nil {
			return c.abandon(err)
		}
	}
}

// CloseIdleConnections closes those of Base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	t.ready()
	if b, ok := t.own.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// ready makes what t has to have of its own.
func (t *Transport) ready() {
	t.once.Do(func() {
		t.own = parts{base: t.Base, quota: t.Quota, waiter: t.Waiter, trace: t.Trace, retry: t.Retry.filled(nil)}
		if t.own.base == nil {
			t.own.base = http.DefaultTransport
		}
		if t.own.quota == nil {
			t.own.quota = &quota.Tracker{Clock: t.Clock}
		}
		if t.own.trace == nil {
			t.own.trace = new(Trace)
		}
		if t.own.waiter == nil {
			t.own.waiter = &throttle.Waiter{Clock: t.Clock}
		}
		t.own.quota.Wakes(t.own.waiter)
		if tr := t.own.trace; tr.Hold != nil || tr.LimitLearned != nil {
			t.own.events = &quota.Events{Hold: tr.Hold, LimitLearned: tr.LimitLearned}
			t.own.quota.Listen(t.own.events)
		}
	})
}

func (t *Transport) now() time.Time {
	if t.Clock == nil {
		return time.Now()
	}
	return t.Clock.Now()
}

// sleep returns after d on clock, or when ctx ends with its cause.
func sleep(ctx context.Context, clock throttle.Clock, d time.Duration) error {
	if clock != nil {
		select {
		case <-clock.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
