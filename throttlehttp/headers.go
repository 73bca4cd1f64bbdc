package throttlehttp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

const triples = quota.XRateLimit | quota.XResetAfter | quota.Draft03 // the dialects with room for one limit

func (m *Middleware) dialect() quota.Dialect {
	if m.Dialect == 0 {
		return quota.XRateLimit | quota.XResetAfter
	}
	return m.Dialect
}

// writeGranted says how the limits of a granted t stand, of which the one at
// index first is tightest.
func (m *Middleware) writeGranted(h http.Header, t *throttle.Ticket, first int) {
	if first < 0 {
		return
	}
	dialect := m.dialect()
	var all [throttle.MaxDemands]quota.Limit
	if d, _ := t.Decision(first); dialect&triples != 0 && !saysLess(h, d.Remaining) {
		all[0] = limitOf(d)
		quota.Write(h, dialect&triples, quota.Report{Limits: all[:1]})
	}
	if dialect&quota.Draft10 == 0 {
		return
	}
	list := all[:0]
	for i := range t.Demands {
		if d, ok := t.Decision(i); ok && d.Limit != 0 {
			list = append(list, limitOf(d))
		}
	}
	addItems(h, quota.Report{Limits: list})
}

// writeRefused says how the limit stands that refused, and when to come back.
func (m *Middleware) writeRefused(h http.Header, d throttle.Decision) {
	var r quota.Report
	if d.Limit != 0 {
		r.Limits = []quota.Limit{limitOf(d)}
	}
	if m.dialect()&quota.Draft10 != 0 {
		addItems(h, r)
	}
	r.RetryAfter, r.HasRetryAfter = d.Wait, d.Wait > 0 && d.Wait != throttle.Forever
	quota.Write(h, m.dialect()&^quota.Draft10, r)
}

// addItems adds the limits of r to those that a middleware further out has told.
func addItems(h http.Header, r quota.Report) {
	state, policy := h["Ratelimit"], h["Ratelimit-Policy"]
	quota.Write(h, quota.Draft10, r)
	if state != nil {
		h["Ratelimit"] = append(state, h["Ratelimit"]...)
		h["Ratelimit-Policy"] = append(policy, h["Ratelimit-Policy"]...)
	}
}

// limitOf returns the state that d tells in the words of package quota. Headers
// have whole seconds; a window that has not is better not told at all, since
// quota by window is the pace that a client may trust.
func limitOf(d throttle.Decision) quota.Limit {
	l := quota.Limit{
		Name:  d.Policy,
		Limit: d.Limit, HasLimit: true,
		Remaining: d.Remaining, HasRemaining: true,
		ResetAfter: d.ResetAfter, HasReset: true,
	}
	if d.Per%time.Second == 0 {
		l.Window = d.Per
	}
	return l
}

// saysLess reports whether a middleware further out has told of a limit that
// leaves no more than left.
func saysLess(h http.Header, left int64) bool {
	for _, key := range [...]string{"X-Ratelimit-Remaining", "Ratelimit-Remaining"} {
		if v := h[key]; len(v) > 0 {
			n, err := strconv.ParseInt(v[0], 10, 64)
			return err == nil && n <= left
		}
	}
	return false
}

// whenAgain is the end of the sentence that a refused client reads: what
// Retry-After says, for people.
func whenAgain(wait time.Duration, retryAfter string) string {
	switch {
	case wait == throttle.Forever:
		return " This one cannot be taken at any time."
	case retryAfter == "":
		return " Try again later."
	case retryAfter == "1":
		return " Try again in 1 second."
	}
	return " Try again in " + retryAfter + " seconds."
}
