package heed

import (
	"context"
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// A RequestOptions says of one request what the Transport cannot know. The zero
// RequestOptions says nothing. It travels in the context, and so through any library that takes
// a context and an http.Client:
//
//	ctx = heed.WithOptions(ctx, heed.RequestOptions{Idempotent: true})
type RequestOptions struct {
	Priority   int   // higher goes first in line
	Cost       int64 // units of Transport.Limiter; 0: 1, negative is an error
	Idempotent bool  // doing it twice is the same as once, whatever its method
	NoRetry    bool  // send it once at most

	// Costs is what the request takes of what the server counts beside requests, by
	// unit: {"tokens": 1500}. It waits until the server has said that so much is
	// left, if the server speaks of that unit at all; see quota.Tracker.DemandUnits.
	// nil: not known, and nothing but requests is counted.
	Costs map[string]int64

	// NoWait has the request fail immediately where it would have to wait, in line or
	// between attempts, with an error that matches ErrMaxWait. What remains are retries
	// without a delay. MaxWait is then not looked at.
	NoWait bool

	MaxWait time.Duration // longest wait in line or between attempts, each; 0: any for limits of our own, else RetryPolicy.MaxWait
}

// WithOptions returns a context that carries r to the Transport. It replaces what an
// earlier WithOptions said.
func WithOptions(ctx context.Context, r RequestOptions) context.Context {
	return context.WithValue(ctx, requestKey{}, &r)
}

// OptionsFrom returns what WithOptions put into ctx, or the zero RequestOptions.
func OptionsFrom(ctx context.Context) RequestOptions {
	if r, ok := ctx.Value(requestKey{}).(*RequestOptions); ok {
		return *r
	}
	return RequestOptions{}
}

type requestKey struct{}

// Info is what happened to a request before its answer was returned.
type Info struct {
	Attempts    int                    // times it was sent, at least 1
	QueueWait   time.Duration          // time in line for limits, all attempts
	Limit       string                 // name of the limit that it stood longest in line for; "": none
	BackoffWait time.Duration          // time before the first attempt because of Transport.StartJitter, and between attempts, beside the time in line
	Limits      []throttle.RemoteLimit // the server's limits, as the answer tells them
	StopReason  error                  // why it was not sent again although it failed, see GiveUpError; nil: the answer is no failure

	longestWait time.Duration // time in line for Limit, at once
}

// InfoFrom returns what happened to the request that resp answers. It is false if
// there is nothing to tell: one attempt, no wait, an answer that is no failure and
// names no limit.
func InfoFrom(resp *http.Response) (Info, bool) {
	info := Info{Attempts: 1}
	n := infoContextOf(resp)
	if n != nil {
		info = n.info
	}
	if info.Limits = limitsOf(resp, n); info.Limits == nil && !info.nonTrivial() {
		return Info{}, false
	}
	return info, true
}

// limitsOf reads the limits only when somebody asks: the answer still has them. What
// its body said is not among them.
func limitsOf(resp *http.Response, n *infoContext) []throttle.RemoteLimit {
	if resp == nil {
		return nil
	}
	host := ""
	if resp.Request != nil && resp.Request.URL != nil {
		host = resp.Request.URL.Host
	}
	r := new(headers.Reader)
	if n != nil && n.reader != nil {
		r = n.reader
	}
	report := r.Parse(host, resp.StatusCode, resp.Header, time.Now())
	return report.AppendRemoteLimits(nil)
}

// addWait adds time in line for a limit.
func (i *Info) addWait(d time.Duration, limit string) {
	i.QueueWait += d
	if d > i.longestWait {
		i.longestWait, i.Limit = d, limit
	}
}

// nonTrivial reports whether there is more to tell than one attempt.
func (i *Info) nonTrivial() bool {
	return i.Attempts > 1 || i.QueueWait+i.BackoffWait > 0 || i.StopReason != nil
}

// An infoContext carries an Info in the context of Response.Request. That is where it
// survives whatever is wrapped around the Body, as http.Client.Timeout does, and
// where it costs nothing if it is not there.
type infoContext struct {
	context.Context
	info   Info
	reader *headers.Reader // of the Tracker; nil: the zero Reader
	owner  *http.Request   // whose context it is: the note means nothing to requests derived from that
}

type infoContextKey struct{}

// Value implements context.Context.
func (n *infoContext) Value(key any) any {
	if key == (infoContextKey{}) {
		return n
	}
	return n.Context.Value(key)
}

// attachInfo adds info to resp, which answers req.
func attachInfo(resp *http.Response, req *http.Request, info Info, r *headers.Reader) {
	n := &infoContext{Context: req.Context(), info: info, reader: r}
	n.owner = req.WithContext(n)
	resp.Request = n.owner
}

func infoContextOf(resp *http.Response) *infoContext {
	if resp == nil || resp.Request == nil {
		return nil
	}
	n, _ := resp.Request.Context().Value(infoContextKey{}).(*infoContext)
	if n == nil || n.owner != resp.Request {
		return nil
	}
	return n
}
