package heed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// RetryPolicy says which requests are sent again, how often and how soon. The zero
// RetryPolicy is what the zero Transport does.
//
// Sent again, if the body can be:
//
//	answer                                    request
//	429, and 403 that is a throttle           any: the server refused the work
//	503 with Retry-After, 529                 any
//	408, 425, 500, 502, 503, 504,             idempotent
//	520 to 524
//	X-Should-Retry or Stripe-Should-Retry     as it says
//	a failure before anything was sent        any
//	any other failure                         idempotent
//	a certificate that is not trusted,        none
//	insufficient_quota and the like in a body,
//	any other answer
//
// Idempotent are GET, HEAD, OPTIONS, TRACE, PUT, DELETE, whatever has an
// Idempotency-Key or X-Idempotency-Key, and what heed.RequestOptions says is.
type RetryPolicy struct {
	MaxAttempts int // most times a request is sent; 0: 4, below 0 and 1: once

	// MaxThrottledAttempts is most times a request is sent if all that goes wrong is that the
	// server says to slow down. Where many share a limit, one may be refused
	// several times because of the others, and the wait is the limit's, so this
	// is a bound on patience rather than on load. 0: MaxAttempts if that is set, else 10.
	MaxThrottledAttempts int

	Backoff backoff.Policy // pause after a failure; nil: the zero backoff.Exponential

	// RetryAfterJitter makes the delay where the server states a Retry-After. Zero seconds are
	// obeyed too unless RetryAfterJitter.Min is set: the first retry of a call is then sent
	// immediately, and each later one after a tenth of the delay of Backoff.
	RetryAfterJitter backoff.RetryAfterJitter

	Budget *backoff.Budget // bounds retries to a share of the requests; nil: one of the Transport's own

	// MaxWait is the longest pause, and the longest wait in line that the server
	// asks for: whoever would wait longer is told so at once, those who are in line
	// already when the server says so, too. Limits of our own may make a request wait
	// as long as its context allows. 0: 2 min, negative: any.
	MaxWait time.Duration

	// MaxElapsed is the longest time from the end of the first attempt to the start
	// of the last. The first wait in the queue and the time that the last attempt
	// takes are not part of it: a running attempt is never cancelled. Waits for
	// limits of our own are, from the second attempt on. Zero means 3 minutes,
	// negative any time.
	MaxElapsed time.Duration

	// AttemptTimeout is how long an attempt may take until its answer begins. The
	// answer's body then has all the time that the request has. 0: any.
	AttemptTimeout time.Duration

	// MaxBodyBuffer is how many bytes of a body that has no GetBody and cannot seek are
	// kept while it is sent, to send them again. A body known to be longer is not
	// kept at all; one that turns out to be is let go and sent once. 0: 256 KiB,
	// negative: none.
	MaxBodyBuffer int64

	// AttemptHeader is the name of a header that tells the server the number of
	// the attempt, from the second on; "": none.
	AttemptHeader string

	// IdempotencyKey makes the Idempotency-Key of a request that has none and is not
	// idempotent, the same for all its attempts; nil: none. A 409, which says that
	// the first attempt is still at work, is then sent again too.
	IdempotencyKey func() string

	// Idempotent reports whether a request may be processed twice, for a whole API. It
	// adds to the rules above, is asked for requests that they do not call idempotent,
	// and must not modify the request. Nil: the rules alone. Retryable does not ask it.
	Idempotent func(req *http.Request) bool

	// BeforeSend may change the headers of attempts from the second on, for example to
	// sign them anew, in a copy of the request. An error ends the call; nil: none.
	BeforeSend func(req *http.Request, attempt int) error

	// ShouldRetry has the last word, if it is not nil, on each answer and failure. It is
	// told what is about to happen and returns what shall. An error ends the call
	// with a GiveUpError that matches it. It must not read the body. The bounds
	// above hold whatever it returns.
	ShouldRetry func(req *http.Request, resp *http.Response, err error, again bool) (bool, error)
}

const (
	defaultMaxAttempts          = 4
	defaultMaxThrottledAttempts = 10
	defaultMaxWait              = 2 * time.Minute
	defaultMaxElapsed           = 3 * time.Minute
	defaultMaxBodyBuffer        = 256 << 10
)

// withDefaults returns r with its defaults filled in. The default of Budget is budget, or a
// new one if that is nil.
func (r *RetryPolicy) withDefaults(budget *backoff.Budget) RetryPolicy {
	var p RetryPolicy
	if r != nil {
		p = *r
	}
	if p.MaxThrottledAttempts == 0 && p.MaxAttempts == 0 {
		p.MaxThrottledAttempts = defaultMaxThrottledAttempts
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = defaultMaxAttempts
	}
	p.MaxThrottledAttempts = max(p.MaxThrottledAttempts, p.MaxAttempts)
	if p.Backoff == nil {
		p.Backoff = backoff.Exponential{}
	}
	if p.Budget == nil {
		p.Budget = budget
	}
	if p.Budget == nil {
		p.Budget = new(backoff.Budget)
	}
	if p.MaxBodyBuffer == 0 {
		p.MaxBodyBuffer = defaultMaxBodyBuffer
	}
	p.MaxWait = boundOrDefault(p.MaxWait, defaultMaxWait)
	p.MaxElapsed = boundOrDefault(p.MaxElapsed, defaultMaxElapsed)
	return p
}

// boundOrDefault returns d, or its default if it is zero, or throttle.Forever if it is
// negative.
func boundOrDefault(d, or time.Duration) time.Duration {
	switch {
	case d == 0:
		return or
	case d < 0:
		return throttle.Forever
	}
	return d
}

// Retryable reports whether req may be sent again after what came of it, resp or
// err, by the table of [RetryPolicy], for programs with loops of their own. The body of
// req, the number of attempts and the wait are not looked at. What [WithOptions] says
// of req counts; err may be wrapped, as by http.Client.
func Retryable(req *http.Request, resp *http.Response, err error) bool {
	opts := OptionsFrom(req.Context())
	if opts.NoRetry || resp == nil && err == nil {
		return false
	}
	class := retryNever
	if err != nil {
		class = classifyError(err)
	} else {
		var r headers.Reader
		host := "" // of a request that nobody knows, as retryable makes it
		if req.URL != nil {
			host = req.URL.Host
		}
		report, o := r.Parse(host, resp.StatusCode, resp.Header, time.Now()), throttle.Accepted
		if report.Throttled {
			o = throttle.Throttled
		}
		class = classifyResponse(resp, o, report.HasRetryAfter)
	}
	return class == retryAlways || class == retryIdempotent && isIdempotent(req, opts)
}

// A retryClass says which requests may be sent again after what came of one.
type retryClass uint8

const (
	retryNever      retryClass = iota // none: it is good, or would not get better
	retryIdempotent                   // those that do no harm when done twice
	retryAlways                       // any: the work was not done
)

// classifyResponse judges an answer; hasRetryAfter: it has a Retry-After.
func classifyResponse(resp *http.Response, o throttle.Outcome, hasRetryAfter bool) retryClass {
	if resp.StatusCode < 400 && o != throttle.Throttled {
		return retryNever
	}
	if class, ok := retryHint(resp.Header); ok {
		return class
	}
	switch s := resp.StatusCode; {
	case s < 400:
		return retryIdempotent // the body says that it was refused, but not that nothing was done
	case s == http.StatusTooManyRequests, s == 529: // 529: overloaded, the request was not processed
		return retryAlways
	case s == http.StatusServiceUnavailable && hasRetryAfter:
		return retryAlways
	case isRetryableStatus(s):
		return retryIdempotent
	case s < 500 && o == throttle.Throttled:
		return retryAlways
	}
	return retryNever
}

// isRetryableStatus reports whether status s is a failure that may be temporary. 520 to 524 are
// Cloudflare's for an origin that it cannot reach.
func isRetryableStatus(s int) bool {
	switch s {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return 520 <= s && s <= 524
}

// retryHint returns what a failing server says itself about sending again.
func retryHint(h http.Header) (retryClass, bool) {
	for _, name := range [...]string{"X-Should-Retry", "Stripe-Should-Retry"} {
		switch h.Get(name) {
		case "true":
			return retryAlways, true
		case "false":
			return retryNever, true
		}
	}
	if n, err := strconv.ParseInt(h.Get("Grpc-Retry-Pushback-Ms"), 10, 64); err == nil && n < 0 {
		return retryNever, true
	}
	return retryNever, false
}

// forbidsRetry reports whether a failing server says itself that resp is final.
func forbidsRetry(resp *http.Response) bool {
	if resp == nil {
		return false
	}
	class, ok := retryHint(resp.Header)
	return ok && class == retryNever
}

// isIdempotent reports whether req may be done twice.
func isIdempotent(req *http.Request, opts RequestOptions) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return opts.Idempotent || req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != ""
}

// classifyError judges a failure without an answer, by its type alone. What has
// no type that tells counts as perhaps sent.
func classifyError(err error) retryClass {
	switch {
	case isPermanent(err):
		return retryNever
	case notSent(err):
		return retryAlways
	}
	return retryIdempotent
}

// isPermanent reports whether err would come again, or is somebody's wish: a
// certificate that is not trusted, a TLS alert of the other side, a server that
// does not speak TLS, an address that is none, a name that is not known, a context
// that was cancelled below the Transport, or a Transport below that gave up.
func isPermanent(err error) bool {
	var (
		cert           *tls.CertificateVerificationError
		unknown        x509.UnknownAuthorityError
		hostname       x509.HostnameError
		invalidCert    x509.CertificateInvalidError
		record         tls.RecordHeaderError
		ech            *tls.ECHRejectionError
		op             *net.OpError
		dns            *net.DNSError
		addr           *net.AddrError
		parse          *net.ParseError
		network        net.UnknownNetworkError
		invalidRequest invalidRequestError
		below          *GiveUpError
	)
	switch {
	case errors.As(err, &invalidRequest), errors.As(err, &below), errors.Is(err, throttle.ErrRefused), errors.Is(err, queue.ErrClosed):
		return true
	case errors.As(err, &cert), errors.As(err, &unknown), errors.As(err, &hostname), errors.As(err, &invalidCert),
		errors.As(err, &record), errors.As(err, &ech), errors.Is(err, http.ErrSchemeMismatch), errors.Is(err, context.Canceled):
		return true
	case errors.As(err, &addr), errors.As(err, &parse), errors.As(err, &network):
		return true
	case errors.As(err, &dns):
		return dns.IsNotFound && !dns.IsTemporary && !dns.IsTimeout
	}
	return errors.As(err, &op) && op.Op == "remote error" // a TLS alert
}

// isNetworkError reports whether err has a type or value that failures of connections have.
func isNetworkError(err error) bool {
	var n net.Error
	return errors.As(err, &n) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// notSent reports whether err proves that the server has not begun the work.
func notSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") {
		return true
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return true
	}
	var s streamError
	return errors.As(err, &s) && s.Code == refusedStream
}

// streamError has the fields of the HTTP/2 stream errors of net/http, whose type
// is not exported but lets errors.As fill in any struct of the same form.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "heed: HTTP/2 stream error" }

// refusedStream is REFUSED_STREAM of RFC 9113, section 7: the stream was closed
// before any work was done.
const refusedStream = 7

// callerRetries reports whether h says that the program that made the request sends
// it again by itself, so that retries of ours would multiply with its own: by a
// X-Stainless-Retry-Count above 0 (the SDKs of OpenAI, Anthropic and others), or by
// an amz-sdk-request (the SDKs of AWS) that is not the only attempt.
func callerRetries(h http.Header) bool {
	if v := h["X-Stainless-Retry-Count"]; len(v) > 0 {
		if n, err := strconv.Atoi(v[0]); err == nil && n > 0 {
			return true
		}
	}
	v := h["Amz-Sdk-Request"]
	return len(v) > 0 && severalAttempts(v[0])
}

// severalAttempts reports whether an amz-sdk-request such as "attempt=1; max=3" has
// an attempt or a max above 1.
func severalAttempts(s string) bool {
	for field := range strings.SplitSeq(s, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		if name != "attempt" && name != "max" {
			continue
		}
		if n, err := strconv.Atoi(value); err == nil && n > 1 {
			return true
		}
	}
	return false
}

// shouldRetry decides whether what came of the latest attempt is not final, and then how
// long to pause. If it is a failure and final, stopReason says why.
func (rt *roundTrip) shouldRetry(resp *http.Response, err error) bool {
	rt.stopReason = nil
	p := rt.retry
	succeeded := err == nil && resp.StatusCode < 400 && rt.outcome != throttle.Throttled
	if rt.noRetry || succeeded && p.ShouldRetry == nil || rt.isTerminal() {
		return false
	}
	if rt.endedAt.IsZero() {
		rt.endedAt = rt.t.now()
	}
	class, report := rt.classify()
	safe := rt.idempotencyKey != "" || rt.isIdempotent()
	retry := class == retryAlways || class == retryIdempotent && safe
	if p.ShouldRetry != nil {
		retry, rt.stopReason = p.ShouldRetry(rt.req, resp, err, retry)
		rt.stoppedByHook = rt.stopReason != nil
	}
	switch {
	case rt.stoppedByHook:
		return false
	case retry:
		rt.stopReason = rt.prepareRetry(rt.endedAt, report)
		return rt.stopReason == nil
	case class == retryIdempotent && !safe:
		rt.stopReason = ErrNotIdempotent
	case class == retryNever && forbidsRetry(resp):
		rt.stopReason = ErrRetryForbidden
	}
	return false
}

// isIdempotent reports whether the request is idempotent.
func (rt *roundTrip) isIdempotent() bool {
	return isIdempotent(rt.req, rt.opts) || rt.retry.Idempotent != nil && rt.retry.Idempotent(rt.req)
}

// isTerminal reports whether nobody wants another attempt: the caller has gone, or
// a Transport below has given up already, so that attempts do not multiply.
func (rt *roundTrip) isTerminal() bool {
	if rt.err != nil {
		if cause := rt.cancelCause(); cause != nil {
			if rt.attempts > 1 {
				rt.stopReason = cause
			}
			return true
		}
	}
	var below *GiveUpError
	if errors.As(rt.err, &below) {
		return true
	}
	n := infoContextOf(rt.resp)
	return n != nil && n.info.StopReason != nil
}

// classify returns what resp or err is worth, and what the answer says of limits.
func (rt *roundTrip) classify() (retryClass, headers.Report) {
	if rt.err != nil {
		class := classifyError(rt.err)
		if class == retryIdempotent && !isHTTP(rt.req.URL) && !isNetworkError(rt.err) {
			class = retryNever // most likely a scheme that is not registered, which has no type
		}
		return class, headers.Report{}
	}
	report := rt.t.resolved.quota.Report(rt.req, rt.resp, rt.endedAt)
	if rt.retryAfter > report.RetryAfter { // in the body
		report.RetryAfter, report.HasRetryAfter = rt.retryAfter, true
	}
	if rt.idempotencyKey != "" && rt.resp.StatusCode == http.StatusConflict {
		return retryIdempotent, report // the first attempt is still at work on our key
	}
	if report.Permanent {
		return retryNever, report // waiting does not cure it
	}
	return classifyResponse(rt.resp, rt.outcome, report.HasRetryAfter), report
}

// prepareRetry prepares the next attempt, or returns why there can be none.
func (rt *roundTrip) prepareRetry(now time.Time, r headers.Report) error {
	p := rt.retry
	if rt.firstEnd.IsZero() {
		rt.firstEnd, rt.backoffPolicy = now, backoff.ForCall(p.Backoff)
	}
	throttled := rt.outcome == throttle.Throttled
	if !throttled {
		rt.failures++
	}
	if rt.failures >= p.MaxAttempts {
		return withSetting(ErrMaxAttempts, "RetryPolicy.MaxAttempts", p.MaxAttempts)
	}
	if rt.attempts >= p.MaxThrottledAttempts {
		return withSetting(ErrMaxAttempts, "RetryPolicy.MaxThrottledAttempts", p.MaxThrottledAttempts)
	}
	rt.delay = 0
	wait, held := time.Duration(0), false
	statedWait := time.Duration(0)
	if throttled && !rt.retryAfterIsZero(r) {
		statedWait = rt.statedWait(r)
		wait, held = rt.hostHeld(max(r.RetryAfter, p.RetryAfterJitter.Min))
	}
	if !held {
		rt.delay = rt.backoffDelay(r)
		wait = rt.delay
	}
	if err := rt.checkDeadlines(now, max(wait, statedWait), held); err != nil {
		return err
	}
	if err := rt.body.checkReplayable(rt.req); err != nil {
		return err
	}
	if !held && !p.Budget.Withdraw(now) {
		return ErrRetryBudget
	}
	return nil
}

// statedWait returns how long a refusal says that it lasts: its Retry-After, or else the
// longest time until a limit is reset that is used up, or of which nothing else is
// said.
func (rt *roundTrip) statedWait(r headers.Report) (d time.Duration) {
	if d = max(r.RetryAfter, rt.retryAfter); r.HasRetryAfter || d > 0 {
		return d
	}
	for _, l := range r.Limits {
		if l.HasReset && (!l.HasRemaining || l.Remaining <= 0) {
			d = max(d, l.ResetAfter)
		}
	}
	return d
}

// hostHeld reports whether the server's limits, as the Tracker knows them, are shut now
// for as long as the server said, and returns for how long at least; 0: not known.
// Then everybody whom they concern waits in line for them, and is let go one by
// one: to pause alone besides would only lose the turn.
func (rt *roundTrip) hostHeld(minWait time.Duration) (wait time.Duration, held bool) {
	m := rt.t.resolved.quota.Demand(rt.req)
	if m.Limiter == nil {
		return 0, false
	}
	d, err := m.Limiter.Reserve(rt.ctx, throttle.Claim{Key: m.Key, Cost: m.Cost, DryRun: true})
	return d.Wait, err == nil && !d.OK && (d.Wait == 0 || d.Wait >= minWait)
}

// backoffDelay returns the pause of this call alone. Jitter does not lead beyond the
// longest wait that is allowed if what the server said does not.
func (rt *roundTrip) backoffDelay(r headers.Report) time.Duration {
	p := rt.retry
	if rt.retryAfterIsZero(r) {
		return rt.zeroRetryAfterDelay()
	}
	if retryAfter := max(r.RetryAfter, rt.retryAfter); r.HasRetryAfter || retryAfter > 0 {
		d := p.RetryAfterJitter.Delay(retryAfter, rt.attempts)
		if maxWait := rt.maxWait(); retryAfter <= maxWait {
			d = min(d, maxWait)
		}
		return d
	}
	rt.lastDelay = rt.backoffPolicy.Delay(rt.attempts, rt.lastDelay)
	return rt.lastDelay
}

// retryAfterIsZero reports whether the server stated a Retry-After of 0, and RetryPolicy.RetryAfterJitter
// does not say that it counts as more. A date that has passed is not a 0: clocks
// differ.
func (rt *roundTrip) retryAfterIsZero(r headers.Report) bool {
	relative := r.RetryFormat == headers.FormatDeltaSeconds || r.RetryFormat == headers.FormatDeltaMillis
	return relative && max(r.RetryAfter, rt.retryAfter) < time.Microsecond && rt.retry.RetryAfterJitter.Min <= 0
}

// zeroRetryAfterDelay returns the delay after a Retry-After of 0: none after the first one of the
// call. After each one that follows it is a tenth of what the policy says, which
// grows, so that a server that always states 0 is not asked at the pace of the
// network.
func (rt *roundTrip) zeroRetryAfterDelay() time.Duration {
	rt.zeroRetryAfters++
	if rt.zeroRetryAfters == 1 {
		return 0
	}
	rt.lastDelay = rt.backoffPolicy.Delay(rt.zeroRetryAfters-1, rt.lastDelay)
	if rt.lastDelay == backoff.Stop {
		return rt.lastDelay
	}
	return rt.lastDelay / 10
}

// checkDeadlines returns an error if a wait that begins now would be too long.
func (rt *roundTrip) checkDeadlines(now time.Time, wait time.Duration, held bool) error {
	p, maxWait := rt.retry, rt.maxWait()
	if held && rt.retryAfter <= maxWait {
		maxWait = rt.maxServerWait()
	}
	deadline, hasDeadline := rt.ctx.Deadline()
	switch {
	case rt.delay == backoff.Stop:
		return withSetting(ErrMaxAttempts, "the delay of RetryPolicy.Backoff", "backoff.Stop")
	case wait > maxWait:
		return rt.errMaxWait()
	case wait > p.MaxElapsed-now.Sub(rt.firstEnd):
		return withSetting(ErrMaxElapsed, "RetryPolicy.MaxElapsed", p.MaxElapsed)
	case hasDeadline && time.Until(deadline) <= wait:
		return context.DeadlineExceeded
	}
	return nil
}

// maxWait returns the longest wait between two attempts.
func (rt *roundTrip) maxWait() time.Duration {
	switch {
	case rt.opts.NoWait:
		return 0
	case rt.opts.MaxWait > 0:
		return rt.opts.MaxWait
	}
	return rt.retry.MaxWait
}

// errMaxWait returns ErrMaxWait with the setting that maxWait returns.
func (rt *roundTrip) errMaxWait() error {
	switch {
	case rt.opts.NoWait:
		return withSetting(ErrMaxWait, "RequestOptions.NoWait", true)
	case rt.opts.MaxWait > 0:
		return withSetting(ErrMaxWait, "RequestOptions.MaxWait", rt.opts.MaxWait)
	}
	return withSetting(ErrMaxWait, "RetryPolicy.MaxWait", rt.retry.MaxWait)
}

// maxServerWait returns the longest wait in line that a server may impose: the Tracker
// lets requests go a little later than they were told to, at random, and that alone
// does not make a wait too long.
func (rt *roundTrip) maxServerWait() time.Duration {
	maxWait := rt.maxWait()
	return min(maxWait, throttle.Forever-time.Second) + min(maxWait/40, time.Second)
}
