package throttlehttp

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

const singleLimitDialects = headers.XRateLimit | headers.XResetAfter | headers.Draft03 // dialects that describe a single limit

func (m *Middleware) dialect() headers.Dialect {
	if m.Dialect == 0 {
		return headers.XRateLimit | headers.XResetAfter
	}
	return m.Dialect
}

// writeGranted writes the state of the limits of a granted p.
func (m *Middleware) writeGranted(h http.Header, p *requestState) {
	var tightest throttle.Decision
	n := p.lowestRemaining(false, &tightest)
	if n == 0 {
		return
	}
	dialect := m.dialect()
	if hasLowerRemaining(h, tightest.Remaining) {
		dialect &^= singleLimitDialects
	}
	var buf [4]headers.Limit
	all := append(buf[:0], limitOf(&tightest))
	if n == 1 && h["Ratelimit"] == nil {
		headers.Write(h, dialect, headers.Report{Limits: all[:1]})
		return
	}
	if dialect&singleLimitDialects != 0 {
		headers.Write(h, dialect&singleLimitDialects, headers.Report{Limits: all[:1]})
	}
	if dialect&headers.Draft10 == 0 {
		return
	}
	list := all[:0]
	for i := range p.ticket.Demands {
		if d, ok := p.ticket.Decision(i); ok && d.Limit != 0 && !d.Shadow && !p.isHidden(i) {
			list = addByName(list, limitOf(&d))
		}
	}
	appendItems(h, headers.Report{Limits: list})
}

// addByName appends l to list. If a limit of its name is in list, only the one with fewer units left
// stays, because clients identify a limit by its name.
func addByName(list []headers.Limit, l headers.Limit) []headers.Limit {
	for i := range list {
		if list[i].Name == l.Name {
			if l.Remaining < list[i].Remaining {
				list[i] = l
			}
			return list
		}
	}
	return append(list, l)
}

// writeRejected writes the state of the limit that made decision d, and when to retry.
func (m *Middleware) writeRejected(h http.Header, d *throttle.Decision) {
	var r headers.Report
	if d.Limit != 0 && !slices.ContainsFunc(m.Rules, func(u Rule) bool { return u.Hidden }) {
		r.Limits = []headers.Limit{limitOf(d)}
	}
	if m.dialect()&headers.Draft10 != 0 {
		appendItems(h, withoutPolicy(r, d))
	}
	if r.HasRetryAfter = d.Wait > 0 && d.Wait != throttle.Forever; r.HasRetryAfter {
		r.RetryAfter = m.addJitter(d.Wait)
	}
	headers.Write(h, m.dialect()&^headers.Draft10, r)
}

// withoutPolicy returns r without Limit and Window if its limit rejects for longer than its window, as a
// keyed.NewBan does: the window and the units of the limit below it do not describe the ban. r then states
// only when it ends.
func withoutPolicy(r headers.Report, d *throttle.Decision) headers.Report {
	if len(r.Limits) == 0 || d.Per <= 0 || d.Wait <= d.Per || d.Wait == throttle.Forever {
		return r
	}
	l := r.Limits[0]
	l.HasLimit, l.Window = false, 0
	r.Limits = []headers.Limit{l}
	return r
}

// addJitter returns d plus a random delay of up to RetryAfterJitter.
func (m *Middleware) addJitter(d time.Duration) time.Duration {
	if m.RetryAfterJitter <= 0 {
		return d
	}
	return d + min(rand.N(m.RetryAfterJitter), throttle.Forever-d)
}

// appendItems adds the limits of r to those that an outer middleware has written.
func appendItems(h http.Header, r headers.Report) {
	state, policy := h["Ratelimit"], h["Ratelimit-Policy"]
	headers.Write(h, headers.Draft10, r)
	if state != nil {
		h["Ratelimit"] = append(state, h["Ratelimit"]...)
		h["Ratelimit-Policy"] = append(policy, h["Ratelimit-Policy"]...)
	}
}

// limitOf returns the state of the limit that made d as a headers.Limit. Windows in headers
// are whole seconds. A window that is not is omitted: a rounded one would state a wrong
// rate, which clients may rely on.
func limitOf(d *throttle.Decision) headers.Limit {
	l := headers.Limit{
		Name:  policyName(d.Policy),
		Limit: d.Limit, HasLimit: true,
		Remaining: d.Remaining, HasRemaining: true,
		ResetAfter: d.ResetAfter, HasReset: true,
	}
	if d.Per%time.Second == 0 {
		l.Window = d.Per
	}
	return l
}

// hasLowerRemaining reports whether an outer middleware has written a limit with no more than
// left units remaining.
func hasLowerRemaining(h http.Header, left int64) bool {
	for _, key := range [...]string{"X-Ratelimit-Remaining", "Ratelimit-Remaining"} {
		if v := h[key]; len(v) > 0 {
			n, err := strconv.ParseInt(v[0], 10, 64)
			return err == nil && n <= left
		}
	}
	return false
}

// policyName returns the name of a limit in headers, in which only printable ASCII is allowed. Other
// bytes become %XX, so that different names stay different.
func policyName(name string) string {
	for i := range len(name) {
		if !isPrintable(name[i]) {
			return escaped(name)
		}
	}
	return name
}

func escaped(name string) string {
	b := make([]byte, 0, 3*len(name))
	for _, c := range []byte(name) {
		if isPrintable(c) {
			b = append(b, c)
		} else {
			b = fmt.Appendf(b, "%%%02X", c)
		}
	}
	return string(b)
}

func isPrintable(c byte) bool { return ' ' <= c && c <= '~' }
