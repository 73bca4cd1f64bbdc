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
	if info.Limits = limitsOf(resp); n == nil && info.Limits == nil {
		return Info{}, false
	}
	return info, true
}

// limitsOf reads the limits only when somebody asks: the answer still has them.
func limitsOf(resp *http.Response) []throttle.Window {
	if resp == nil {
		return nil
	}
	host := ""
	if resp.Request != nil && resp.Request.URL != nil {
		host = resp.Request.URL.Host
	}
	var r quota.Reader
	report := r.Parse(host, resp.StatusCode, resp.Header, time.Now())
	return report.AppendWindows(nil)
}

// A note carries an Info in the context of Response.Request. That is where it
// survives whatever is wrapped around the Body, as http.Client.Timeout does, and
// where it costs nothing if it is not there.
type note struct {
	context.Context
	info  Info
	owner *http.Request // whose context it is: the note means nothing to requests derived from that
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
func attach(resp *http.Response, req *http.Request, info Info) {
	n := &note{Context: req.Context(), info: info}
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
