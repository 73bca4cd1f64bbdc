package heed

import (
	"context"
	"net/http"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// Info is what happened to a request before its answer was returned.
type Info struct {
	Attempts int               // times it was sent, at least 1
	InLine   time.Duration     // time in line for limits, all attempts
	Limit    string            // name of the limit that it stood longest in line for; "": none
	Paused   time.Duration     // time before the first attempt because of Transport.Splay, and between attempts, beside the time in line
	Limits   []throttle.Window // the server's limits, as the answer tells them
	GaveUp   error             // why it was not sent again although it failed, see GiveUpError; nil: the answer is no failure

	longest time.Duration // time in line for Limit, at once
}

// stood adds time in line for a limit.
func (i *Info) stood(d time.Duration, limit string) {
	i.InLine += d
	if d > i.longest {
		i.longest, i.Limit = d, limit
	}
}

// InfoFrom returns what happened to the request that resp answers. It is false if
// there is nothing to tell: one attempt, no wait, an answer that is no failure and
// names no limit.
func InfoFrom(resp *http.Response) (Info, bool) {
	info := Info{Attempts: 1}
	n := noteOf(resp)
	if n != nil {
		info = n.info
	}
	if info.Limits = limitsOf(resp, n); info.Limits == nil && !info.eventful() {
		return Info{}, false
	}
	return info, true
}

// eventful reports whether there is more to tell than one attempt.
func (i *Info) eventful() bool { return i.Attempts > 1 || i.InLine+i.Paused > 0 || i.GaveUp != nil }

// limitsOf reads the limits only when somebody asks: the answer still has them. What
// its body said is not among them.
func limitsOf(resp *http.Response, n *note) []throttle.Window {
	if resp == nil {
		return nil
	}
	host := ""
	if resp.Request != nil && resp.Request.URL != nil {
		host = resp.Request.URL.Host
	}
	r := new(quota.Reader)
	if n != nil && n.reader != nil {
		r = n.reader
	}
	report := r.Parse(host, resp.StatusCode, resp.Header, time.Now())
	return report.AppendWindows(nil)
}

// A note carries an Info in the context of Response.Request. That is where it
// survives whatever is wrapped around the Body, as http.Client.Timeout does, and
// where it costs nothing if it is not there.
type note struct {
	context.Context
	info   Info
	reader *quota.Reader // of the Tracker; nil: the zero Reader
	owner  *http.Request // whose context it is: the note means nothing to requests derived from that
}

type noteKey struct{}

// Value implements context.Context.
func (n *note) Value(key any) any {
	if key == (noteKey{}) {
		return n
	}
	return n.Context.Value(key)
}

// attach adds info to resp, which answers req.
func attach(resp *http.Response, req *http.Request, info Info, r *quota.Reader) {
	n := &note{Context: req.Context(), info: info, reader: r}
	n.owner = req.WithContext(n)
	resp.Request = n.owner
}

func noteOf(resp *http.Response) *note {
	if resp == nil || resp.Request == nil {
		return nil
	}
	n, _ := resp.Request.Context().Value(noteKey{}).(*note)
	if n == nil || n.owner != resp.Request {
		return nil
	}
	return n
}
