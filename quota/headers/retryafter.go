package headers

import (
	"net/http"
	"slices"
	"time"
)

// readRetryHeaders reads the headers of the Retry-After family. The longest delay is used,
// and malformed values are ignored. A delay in milliseconds that is not 0 takes precedence
// over Retry-After, which is the same delay in whole seconds.
func (p *parser) readRetryHeaders() {
	exact := slices.ContainsFunc(p.retryHeaders, p.isMilliseconds)
	for _, h := range p.retryHeaders {
		if exact && h.isRetryAfter {
			continue
		}
		for _, v := range h.values[:min(len(h.values), maxInstances)] {
			if len(v) <= maxDateLen {
				p.addRetryAfter(v, h.scale)
			}
		}
	}
}

// isMilliseconds reports whether h is a delay in milliseconds that is not 0.
func (p *parser) isMilliseconds(h retryHeader) bool {
	if h.scale != time.Millisecond || len(h.values[0]) > maxDateLen {
		return false
	}
	d, _, ok := p.parseRetryDelay(h.values[0], h.scale)
	return ok && d > 0
}

func (p *parser) addRetryAfter(v string, scale time.Duration) {
	d, form, ok := p.parseRetryDelay(v, scale)
	if ok && (!p.out.HasRetryAfter || d > p.out.RetryAfter || d == p.out.RetryAfter && form < p.out.RetryFormat) {
		p.out.RetryAfter, p.out.HasRetryAfter, p.out.RetryFormat = d, true, form
	}
}

func (p *parser) parseRetryDelay(v string, scale time.Duration) (time.Duration, TimeFormat, bool) {
	v = trimBlanks(v)
	n, ok := parseDecimal(v)
	switch {
	case ok && n.negative:
		return 0, FormatNone, false
	case ok && n.whole >= 1e9:
		return p.parseRetryEpoch(n, scale)
	case ok:
		d, format := n.delay(scale)
		return d, format, true
	}
	t, ok := parseTime(v, scale, p.received)
	if !ok {
		return 0, FormatNone, false
	}
	return p.delayUntil(t), t.format, true
}

// parseRetryEpoch reads a number that is too large for a delay. If it is the time since
// 1970 in seconds or milliseconds, sent by mistake, and close to the current time, it is
// that instant. Otherwise it is the long delay that it states.
func (p *parser) parseRetryEpoch(n decimal, scale time.Duration) (time.Duration, TimeFormat, bool) {
	now := p.serverTime()
	about := func(at time.Time) bool { d := at.Sub(now); return d > -10*365*day && d < 10*365*day }
	if at := time.Unix(n.whole, n.nanos); n.whole < 1e11 && about(at) {
		return timeUntil(at, now), FormatEpochSeconds, true
	}
	if at := time.UnixMilli(n.whole); n.whole < 1e14 && about(at) {
		return timeUntil(at, now), FormatEpochMillis, true
	}
	d, _ := n.delay(scale)
	return d, FormatDeltaSeconds, true
}

// fixRetryAfter detects a Retry-After in milliseconds: read as milliseconds it is close to
// the reset of the same response, and read as seconds it is a thousand times as long.
func (p *parser) fixRetryAfter(l *builders) {
	if p.out.RetryFormat != FormatDeltaSeconds || p.out.RetryAfter < 1000*time.Second {
		return
	}
	for i := range l.limits {
		d := &l.limits[i]
		if !d.HasReset || d.ResetAfter == 0 {
			continue
		}
		if off := p.out.RetryAfter/1000 - d.ResetAfter; off.Abs() <= 2*time.Second && d.ResetAfter < p.out.RetryAfter/100 {
			p.out.RetryAfter, p.out.RetryFormat = p.out.RetryAfter/1000, FormatDeltaMillis
			return
		}
	}
}

// isThrottled reports whether the response is a rejection because of a limit. A 429 is one
// by definition. 403 and 503 have other meanings as well: an exhausted limit makes them a
// rejection, and Retry-After makes a 403 one. Some servers use 418, 420 and 529 for
// rejections.
func (p *parser) isThrottled(list []limitBuilder) bool {
	if p.provider != nil && p.provider.isThrottledStatus(p.status) {
		return true
	}
	switch p.status {
	case http.StatusTooManyRequests, 420, 529:
		return true
	case http.StatusTeapot:
		return p.out.HasRetryAfter
	case http.StatusForbidden:
		return p.out.HasRetryAfter || anyExhausted(list)
	case http.StatusServiceUnavailable:
		return anyExhausted(list)
	}
	return false
}

func anyExhausted(list []limitBuilder) bool {
	for i := range list {
		if list[i].HasRemaining && list[i].Remaining == 0 {
			return true
		}
	}
	return false
}
