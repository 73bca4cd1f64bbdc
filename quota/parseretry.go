package quota

import (
	"net/http"
	"slices"
	"time"
)

// readRetries reads the headers of the Retry-After family. The longest delay counts, and what
// is malformed is not stated. A delay in milliseconds that is not 0 goes before Retry-After,
// which is the same in whole seconds.
func (p *parser) readRetries() {
	exact := slices.ContainsFunc(p.retries, p.isExact)
	for _, h := range p.retries {
		if exact && h.plain {
			continue
		}
		for _, v := range h.values[:min(len(h.values), maxLines)] {
			if len(v) <= maxDate {
				p.retry(v, h.scale)
			}
		}
	}
}

// isExact reports whether h is a delay in milliseconds, and not 0.
func (p *parser) isExact(h retryHeader) bool {
	if h.scale != time.Millisecond || len(h.values[0]) > maxDate {
		return false
	}
	d, _, ok := p.retryDelay(h.values[0], h.scale)
	return ok && d > 0
}

func (p *parser) retry(v string, scale time.Duration) {
	d, form, ok := p.retryDelay(v, scale)
	if ok && (!p.out.HasRetryAfter || d > p.out.RetryAfter || d == p.out.RetryAfter && form < p.out.RetryForm) {
		p.out.RetryAfter, p.out.HasRetryAfter, p.out.RetryForm = d, true, form
	}
}

func (p *parser) retryDelay(v string, scale time.Duration) (time.Duration, Form, bool) {
	v = trim(v)
	n, ok := parseNumber(v)
	switch {
	case ok && n.negative:
		return 0, NoForm, false
	case ok && n.whole >= 1e9:
		return p.retryEpoch(n, scale)
	case ok && scale == time.Millisecond:
		return n.times(scale), DeltaMillis, true
	case ok:
		return n.times(time.Second), DeltaSeconds, true
	}
	t, ok := parseInstant(v, scale, p.received)
	if !ok {
		return 0, NoForm, false
	}
	return p.delay(t), t.form, true
}

// retryEpoch reads a number too large for a delay: the time since 1970 in seconds
// or milliseconds, sent by mistake, if that is a time about now; else it is the
// endless delay that it says.
func (p *parser) retryEpoch(n number, scale time.Duration) (time.Duration, Form, bool) {
	now := p.clock()
	about := func(at time.Time) bool { d := at.Sub(now); return d > -10*365*day && d < 10*365*day }
	if at := time.Unix(n.whole, n.nanos); n.whole < 1e11 && about(at) {
		return clampDelay(at, now), EpochSeconds, true
	}
	if at := time.UnixMilli(n.whole); n.whole < 1e14 && about(at) {
		return clampDelay(at, now), EpochMillis, true
	}
	if scale == 0 {
		scale = time.Second
	}
	return n.times(scale), DeltaSeconds, true
}

// mendRetry finds a Retry-After in milliseconds: as such it is about the reset of
// the same answer, and as seconds a thousand times that.
func (p *parser) mendRetry(l *ledger) {
	if p.out.RetryForm != DeltaSeconds || p.out.RetryAfter < 1000*time.Second {
		return
	}
	for i := range l.list {
		d := &l.list[i]
		if !d.HasReset || d.ResetAfter == 0 {
			continue
		}
		if off := p.out.RetryAfter/1000 - d.ResetAfter; off.Abs() <= 2*time.Second && d.ResetAfter < p.out.RetryAfter/100 {
			p.out.RetryAfter, p.out.RetryForm = p.out.RetryAfter/1000, DeltaMillis
			return
		}
	}
}

// throttled reports whether the answer is a refusal because of a limit. 429 is
// one by definition. 403 and 503 mean other things too: a limit that is used up
// makes them one, and Retry-After makes 403 one. 418, 420 and 529 are what some
// made up for the purpose.
func (p *parser) throttled(list []draft) bool {
	if p.vendor != nil && p.vendor.refuses(p.status) {
		return true
	}
	switch p.status {
	case http.StatusTooManyRequests, 420, 529:
		return true
	case http.StatusTeapot:
		return p.out.HasRetryAfter
	case http.StatusForbidden:
		return p.out.HasRetryAfter || usedUp(list)
	case http.StatusServiceUnavailable:
		return usedUp(list)
	}
	return false
}

func usedUp(list []draft) bool {
	for i := range list {
		if list[i].HasRemaining && list[i].Remaining == 0 {
			return true
		}
	}
	return false
}
