package heed

import (
	"context"
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

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

// addWait adds time in line for a limit.
func (i *Info) addWait(d time.Duration, limit string) {
	i.QueueWait += d
	if d > i.longestWait {
		i.longestWait, i.Limit = d, limit
	}
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

// nonTrivial reports whether there is more to tell than one attempt.
func (i *Info) nonTrivial() bool {
	return i.Attempts > 1 || i.QueueWait+i.BackoffWait > 0 || i.StopReason != nil
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
