package heed

import (
	"cmp"
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
	"github.com/heed-go/heed/internal/h2error"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// RetryPolicy defines which failed requests are retried, how often, and after which
// delay. The zero RetryPolicy is the default of the Transport.
//
// A request is retried in these cases, if its body can be sent again. The first row that
// matches applies:
//
//	outcome of the attempt                    requests that are retried
//	rejection that waiting does not cure,     none
//	such as insufficient_quota
//	failure with X-Should-Retry or            all if "true", none if "false"
//	Stripe-Should-Retry
//	429, 529, 503 with Retry-After, 503       all
//	whose body states that the server is
//	overloaded, such as overloaded_error
//	408, 425, 500, 502, 503, 504, 520 to 524  idempotent requests
//	other 4xx that states a rate limit        all
//	2xx whose body states a rate limit        idempotent requests
//	any other response                        none
//	untrusted certificate, invalid address,   none
//	body of another length than ContentLength
//	connection failure before the request     all
//	was sent
//	any other connection failure              idempotent requests
//
// In the rows with "all", the server rejected the request, did not receive it, or states
// that it may be retried.
//
// Requests are idempotent if their method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE, if
// they have an Idempotency-Key or X-Idempotency-Key header, or if
// RequestOptions.Idempotent or RetryPolicy.Idempotent declares it.
type RetryPolicy struct {
	// MaxAttempts is the maximum number of times that a request is sent, the first time included.
	// Zero means 10. One disables retries, as does a negative value.
	MaxAttempts int

	// MaxFailures is the maximum number of attempts that fail without being rejected because of a limit.
	// It is lower than MaxAttempts by default: if many clients share a limit, a request may be
	// rejected several times because of the others, and the limit sets the delay. Zero means 5, or MaxAttempts if
	// that is set. One, and a negative value, means that only rejected requests are sent again.
	MaxFailures int

	// MaxBackoff is the longest total of the delays of Backoff after attempts that failed, or that a 5xx
	// rejected: the retries of a request to a server that is down or overloaded end after it. Rejections because of
	// a limit, such as 429, do not count: they end with MaxAttempts and MaxElapsed. Zero means 1 minute; a
	// negative value means no limit.
	MaxBackoff time.Duration

	// Backoff returns the delay before a retry if the server states none. After a failure that
	// is not a rejection because of a limit, a Retry-After only makes the delay longer, by at
	// most 5 s. Nil means backoff.Exponential{Factor: 3, Jitter: backoff.Equal}: 250 to 500 ms,
	// 0.75 to 1.5 s, 2.25 to 4.5 s and so on, at most 30 s. The delays of five attempts add up to
	// at least 10 s, like those of hashicorp/go-retryablehttp. Where that would pass the deadline of
	// the context, a delay is shorter, but not shorter than the one before it.
	Backoff backoff.Policy

	// RetryAfterJitter adds a random delay to a Retry-After that a rejection because of a
	// limit states. Its zero value adds up to 500 ms or 10 %, whichever is longer, up to twice as
	// much after the second attempt, and four times from the third on. If the server states 0 and
	// RetryAfterJitter.Min is not set, the first retry is sent immediately, and each later one
	// after a tenth of the delay of Backoff.
	RetryAfterJitter backoff.RetryAfterJitter

	// Budget limits retries to a fraction of the requests. Those after a rejection because of a
	// limit do not count: MaxAttempts limits them. Nil means a Budget of the Transport alone,
	// of as many retries as requests and 100 per second in addition, so that retries at most
	// double a high load. A zero backoff.Budget allows fewer.
	Budget *backoff.Budget

	// MaxServerWait is the longest delay before a retry, and the longest wait in the queue that
	// the server may impose. A request that would have to wait longer fails immediately;
	// so do requests that are already in the queue when the server states a longer time. Until
	// two waits that the server stated were right, both fail after a round trip: see package
	// quota. It does not apply to waits that the program's own limits impose. Zero means
	// 10 minutes; a negative value means no limit.
	MaxServerWait time.Duration

	// MaxElapsed is the longest time from the end of the first attempt to the start of the
	// last. It includes the attempts, delays and waits in the queue between these two, also
	// waits that the program's own limits impose. An attempt in flight is never canceled. Zero
	// means 15 minutes; a negative value means no limit.
	MaxElapsed time.Duration

	// AttemptTimeout is the longest time from the start of an attempt to the headers of
	// its response. It does not limit the time for reading the response body. Zero or
	// less means no limit.
	AttemptTimeout time.Duration

	// MaxBodyBuffer is the maximum number of bytes of a request body that are buffered for
	// retries while the body is sent. It applies to bodies without GetBody that are not an
	// io.Seeker. A larger body is not retried: one with a larger ContentLength is not buffered,
	// and the buffer of one of unknown length is freed when it is full. Zero means 256 KiB; a
	// negative value means that no body is buffered.
	MaxBodyBuffer int64

	// AttemptHeader is the name of a request header that contains the number of the
	// attempt. It is sent from the second attempt on. Empty means none.
	AttemptHeader string

	// IdempotencyKey returns the Idempotency-Key header for a request that has none and is not idempotent, also if it
	// is not retried. All its attempts have the same key, and it is retried like an idempotent request, also after a
	// 409, which means that the server still processes an earlier attempt. A program or an SDK that repeats the request
	// itself gets another key each time, and must set its own. Nil means that no key is added.
	IdempotencyKey func() string

	// Idempotent reports whether a request that is not idempotent by the rules of RetryPolicy
	// may be processed twice. It must not modify the request. The function Retryable does not
	// call it. Nil means that only the rules apply.
	Idempotent func(req *http.Request) bool

	// BeforeSend is called before each attempt, after all limits have granted it, so that what it adds does not expire
	// while the request waits: a signature, a short-lived token. It gets the number of the attempt, starting at 1, and
	// a copy of the request whose header and URL it may change, but not the scheme and host. It must not read Body.
	// GetBody returns a copy of the body; it is nil if the caller did not set it, as http.NewRequest does not for files
	// and streams. The context of the request ends after AttemptTimeout. After an error the attempt is not sent, its
	// units are returned to the limits, and the call ends with an error that wraps it, also if an earlier attempt got a
	// response. It is not called after a redirect to another host that is not a subdomain of the first one, as
	// http.Client removes credentials then.
	//
	// If a call takes longer than a second while the request holds units of a concurrency
	// limit, such as a call that fetches a token, its units are returned, and the request
	// claims them again after the call, at its former place in the queue. Nil means none.
	BeforeSend func(req *http.Request, attempt int) error

	// ShouldRetry decides whether an attempt is retried. It is called after each attempt, also
	// after a success, unless retries of the request are disabled or the caller canceled it.
	// The result replaces again, which is the decision by the table of RetryPolicy. ShouldRetry
	// cannot exceed the number of attempts, the longest waits and the Budget, or retry a body
	// that cannot be sent again. An error ends the call with a GiveUpError that matches it. It
	// must not read the body of resp. Nil means that the table alone decides.
	ShouldRetry func(req *http.Request, resp *http.Response, err error, again bool) (bool, error)
}

// A defaultPolicy is the default of RetryPolicy.Backoff. Five attempts take as long as those of
// go-retryablehttp, whose delays are 1, 2, 4 and 8 s, and the second is earlier.
type defaultPolicy struct{ backoff.Exponential }

var defaultBackoff backoff.Policy = defaultPolicy{backoff.Exponential{Factor: 3, Jitter: backoff.Equal}}

// beforeDeadline returns the delay d, halved as often as necessary to leave half of the time to the
// deadline of ctx for the attempt. If it then were shorter than previous, the delay before it, it
// returns d: as the deadline comes near, a call must not be sent faster and faster.
func (defaultPolicy) beforeDeadline(ctx context.Context, d, previous time.Duration) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return d
	}
	short, longest := d, max(time.Until(deadline)/2, 0)
	for short > longest {
		short /= 2
	}
	if short < max(previous, 1) {
		return d
	}
	return short
}

// withDefaults returns a copy of r with defaults for zero fields. A nil Budget becomes
// budget, or a new one if budget is nil.
func (r *RetryPolicy) withDefaults(budget *backoff.Budget) RetryPolicy {
	p := *cmp.Or(r, new(RetryPolicy))
	if p.MaxAttempts == 0 {
		p.MaxAttempts, p.MaxFailures = 10, cmp.Or(p.MaxFailures, 5)
	}
	p.MaxFailures = cmp.Or(p.MaxFailures, p.MaxAttempts)
	p.MaxBackoff = durationOr(p.MaxBackoff, time.Minute)
	p.MaxServerWait = durationOr(p.MaxServerWait, 10*time.Minute)
	p.MaxElapsed = durationOr(p.MaxElapsed, 15*time.Minute)
	p.Backoff = cmp.Or(p.Backoff, defaultBackoff)
	if p.Budget = cmp.Or(p.Budget, budget); p.Budget == nil {
		p.Budget = &backoff.Budget{Ratio: 1, MinPerSecond: 100}
	}
	p.AttemptTimeout = max(p.AttemptTimeout, 0)
	p.MaxBodyBuffer = cmp.Or(p.MaxBodyBuffer, 256<<10)
	return p
}

// durationOr returns d, or byDefault if d is zero, or throttle.Forever if d is negative.
func durationOr(d, byDefault time.Duration) time.Duration {
	if d < 0 {
		return throttle.Forever
	}
	return cmp.Or(d, byDefault)
}

// Retryable reports whether req may be retried after resp or err, by the table of
// [RetryPolicy], for programs with their own retry loops. It does not check the bodies, the
// number of attempts or the delay. The options in the context of req apply, see
// [WithOptions]. err may be wrapped, for example by http.Client.
func Retryable(req *http.Request, resp *http.Response, err error) bool {
	opts := OptionsFrom(req.Context())
	if opts.NoRetry || resp == nil && err == nil {
		return false
	}
	var class retryClass
	if err != nil {
		class = classifyError(err)
	} else {
		report, o := parseReport(nil, req, resp, time.Now()), throttle.Accepted
		if report.Throttled {
			o = throttle.Throttled
		}
		class = classifyResponse(resp, o, &report)
	}
	return class == retryAlways || class == retryIdempotent && isIdempotent(req, opts, nil)
}

// A retryClass states which requests may be retried after an attempt.
type retryClass uint8

const (
	retryNever      retryClass = iota // none: the attempt succeeded, or a retry would fail in the same way
	retryForbidden                    // none: the response states that
	retryIdempotent                   // idempotent requests
	retryAlways                       // all requests: the server did not process the request
)

// parseReport returns what the headers of resp, received at now, state about limits. A nil r
// means the zero Reader, and req may be nil or have no URL.
func parseReport(r *headers.Reader, req *http.Request, resp *http.Response, now time.Time) headers.Report {
	if r == nil {
		r = new(headers.Reader)
	}
	return r.Parse(hostOf(req), resp.StatusCode, resp.Header, now)
}

// classifyResponse returns the class of a response: that which its headers X-Should-Retry,
// Stripe-Should-Retry and Grpc-Retry-Pushback-Ms state, or else that of its status and
// of r, what it states about limits.
func classifyResponse(resp *http.Response, o throttle.Outcome, r *headers.Report) retryClass {
	if resp.StatusCode < 400 && o != throttle.Throttled {
		return retryNever
	}
	for _, name := range [...]string{"X-Should-Retry", "Stripe-Should-Retry"} {
		switch resp.Header.Get(name) {
		case "true":
			return retryAlways
		case "false":
			return retryForbidden
		}
	}
	if n, err := strconv.ParseInt(resp.Header.Get("Grpc-Retry-Pushback-Ms"), 10, 64); err == nil && n < 0 {
		return retryForbidden
	}
	switch s := resp.StatusCode; {
	case s < 400:
		return retryIdempotent // the body states a rejection, but the request may have been processed in part
	case s == http.StatusTooManyRequests, s == 529: // 529: the server is overloaded and did not process the request
		return retryAlways
	case s == http.StatusServiceUnavailable && (r.HasRetryAfter || r.NotProcessed):
		return retryAlways
	case s == http.StatusRequestTimeout, s == http.StatusTooEarly, s == http.StatusInternalServerError,
		s == http.StatusBadGateway, s == http.StatusServiceUnavailable, s == http.StatusGatewayTimeout,
		520 <= s && s <= 524: // 520 to 524: Cloudflare cannot reach the origin server
		return retryIdempotent
	case s < 500 && o == throttle.Throttled:
		return retryAlways
	}
	return retryNever
}

// isIdempotent reports whether req is idempotent by its method, its headers, opts or
// declared, the RetryPolicy.Idempotent of the call, which may be nil.
func isIdempotent(req *http.Request, opts RequestOptions, declared func(*http.Request) bool) bool {
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	return opts.Idempotent || req.Header.Get("Idempotency-Key") != "" || req.Header.Get("X-Idempotency-Key") != "" ||
		declared != nil && declared(req)
}

// classifyError returns the class of an error by its type. A request whose error has an
// unknown type may have been processed. A retry would fail with the same error, or the error
// is intended, if it is an untrusted certificate, a TLS alert of the server, a server without
// TLS, an invalid address, an unknown host name, a body of another length than ContentLength, a
// request canceled below the Transport, or another Transport below this one that gave up.
func classifyError(err error) retryClass {
	var op *net.OpError
	var dns *net.DNSError
	isOp, isDNS := errors.As(err, &op), errors.As(err, &dns)
	switch {
	case hasType[invalidRequestError](err), hasType[*GiveUpError](err),
		errors.Is(err, throttle.ErrRejected), errors.Is(err, queue.ErrClosed), h2error.IsBodyLength(err),
		hasType[*tls.CertificateVerificationError](err), hasType[x509.UnknownAuthorityError](err),
		hasType[x509.HostnameError](err), hasType[x509.CertificateInvalidError](err),
		hasType[tls.RecordHeaderError](err), hasType[*tls.ECHRejectionError](err),
		errors.Is(err, http.ErrSchemeMismatch), errors.Is(err, context.Canceled),
		hasType[*net.AddrError](err), hasType[*net.ParseError](err), hasType[net.UnknownNetworkError](err),
		isOp && op.Op == "remote error", // a TLS alert
		isDNS && dns.IsNotFound && !dns.IsTemporary && !dns.IsTimeout:
		return retryNever
	case isDNS, isOp && (op.Op == "dial" || op.Op == "proxyconnect"), h2error.NotProcessed(err): // not sent
		return retryAlways
	}
	return retryIdempotent
}

// hasType reports whether err or an error that it wraps is a T.
func hasType[T error](err error) bool {
	var t T
	return errors.As(err, &t)
}

// isNetworkError reports whether err has a type or value that connection failures have.
func isNetworkError(err error) bool {
	return hasType[net.Error](err) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// callerRetries reports whether the program retries the request itself, so that retries of
// the Transport would multiply the attempts: h has an X-Stainless-Retry-Count above 0 (SDKs
// of OpenAI and Anthropic), or an Amz-Sdk-Request (SDKs of AWS) with several attempts.
func callerRetries(h http.Header) bool {
	if v := h["X-Stainless-Retry-Count"]; len(v) > 0 {
		if n, err := strconv.Atoi(v[0]); err == nil && n > 0 {
			return true
		}
	}
	if v := h["Amz-Sdk-Request"]; len(v) > 0 { // such as "attempt=1; max=3"
		for field := range strings.SplitSeq(v[0], ";") {
			name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
			if n, err := strconv.Atoi(value); err == nil && n > 1 && (name == "attempt" || name == "max") {
				return true
			}
		}
	}
	return false
}

// shouldRetry decides whether the latest attempt is retried, and sets the delay. If a
// failed attempt is not retried, it sets info.StopReason.
func (rt *roundTrip) shouldRetry() bool {
	rt.info.StopReason = nil
	a, p := rt.attempt, rt.retry
	succeeded := a.err == nil && a.resp.StatusCode < 400 && a.outcome != throttle.Throttled
	switch {
	case rt.noRetry, succeeded && p.ShouldRetry == nil:
		return false
	case a.err != nil && rt.isTerminal(), a.resp != nil && a.resp.Request != a.sent && gaveUpBelow(a.resp):
		return false
	}
	class := rt.classify()
	safe := rt.idempotencyKey != "" || isIdempotent(rt.req, rt.opts, p.Idempotent)
	retry := class == retryAlways || class == retryIdempotent && safe
	if p.ShouldRetry != nil {
		retry, rt.info.StopReason = p.ShouldRetry(rt.req, a.resp, a.err, retry)
		rt.stoppedByHook = rt.info.StopReason != nil
	}
	switch {
	case rt.stoppedByHook:
		return false
	case retry:
		rt.info.StopReason = rt.prepareRetry()
		return rt.info.StopReason == nil
	case class == retryIdempotent && !safe:
		rt.info.StopReason = ErrNotIdempotent
	case class == retryForbidden:
		rt.info.StopReason = ErrRetryForbidden
	}
	return false
}

// isTerminal reports whether the error of the attempt is final whatever its class: the
// caller canceled the request, its deadline passed, or a Transport below this one gave up.
func (rt *roundTrip) isTerminal() bool {
	cause := context.Cause(rt.ctx)
	if deadline, ok := rt.ctx.Deadline(); cause == nil && ok && time.Until(deadline) <= 0 {
		cause = context.DeadlineExceeded // http.Client.Timeout may end the attempt before the context ends
	}
	if cause != nil {
		if rt.info.Attempts > 1 {
			rt.info.StopReason = cause
		}
		return true
	}
	return hasType[*GiveUpError](rt.attempt.err)
}

// gaveUpBelow reports whether resp is of another Transport below this one that has given
// up. Such a Transport replaces Response.Request.
func gaveUpBelow(resp *http.Response) bool {
	n := infoContextOf(resp)
	return n != nil && n.info.StopReason != nil
}

func (rt *roundTrip) classify() retryClass {
	a, r := rt.attempt, &rt.attempt.report
	if a.err != nil {
		*r = headers.Report{}
		class := classifyError(a.err)
		if s := rt.req.URL.Scheme; class == retryIdempotent && s != "https" && s != "http" && !isNetworkError(a.err) {
			class = retryNever // probably an unregistered scheme, whose error has no type
		}
		return class
	}
	if a.resp.StatusCode < 400 && a.outcome != throttle.Throttled { // the Tracker may not have read it
		*r = parseReport(rt.t.resolved.quota.Reader, rt.req, a.resp, a.resultAt())
	}
	if a.retryAfter > r.RetryAfter { // what the API documents, or a limit states
		r.RetryAfter, r.HasRetryAfter = a.retryAfter, true
	}
	if r.HasRetryAfter {
		r.MinDelay = 0 // which is for rejections that state no time
	}
	if rt.idempotencyKey != "" && a.resp.StatusCode == http.StatusConflict {
		return retryIdempotent // the server still processes an earlier attempt with this key
	}
	class := classifyResponse(a.resp, a.outcome, r)
	if r.Permanent && class != retryForbidden {
		return retryNever // a retry would be rejected too
	}
	return class
}

// prepareRetry sets the delay and opens the body for the next attempt. It returns the
// reason if there can be none.
func (rt *roundTrip) prepareRetry() error {
	a, p := rt.attempt, rt.retry
	r, now := &a.report, a.resultAt()
	if rt.backoffPolicy == nil { // the first failure
		rt.backoffPolicy = backoff.ForCall(p.Backoff)
		if p.MaxElapsed < throttle.Forever {
			rt.until = now.Add(p.MaxElapsed)
		}
	}
	throttled := a.outcome == throttle.Throttled
	if !throttled {
		rt.failures++
	}
	if rt.info.Attempts >= p.MaxAttempts {
		return &settingError{ErrMaxAttempts, "RetryPolicy.MaxAttempts", p.MaxAttempts}
	}
	if rt.failures >= p.MaxFailures && !throttled {
		return &settingError{ErrMaxAttempts, "RetryPolicy.MaxFailures", p.MaxFailures}
	}
	zero := r.HasRetryAfter && rt.isZeroRetryAfter()
	var wait, statedWait time.Duration
	var held bool
	if throttled && !zero {
		statedWait = statedWaitOf(r)
		wait, held = rt.hostHeld(max(r.RetryAfter, p.RetryAfterJitter.Min, r.MinDelay))
	}
	switch {
	case zero:
		rt.delay = rt.zeroRetryAfterDelay()
	case r.HasRetryAfter && held:
		spread := p.RetryAfterJitter
		spread.Min, spread.Max = 1, maxReleaseDelay
		rt.delay = spread.Delay(r.RetryAfter, 1) // the others are sent within as long after the hold
	case r.HasRetryAfter && throttled:
		rt.delay = rt.retryAfterDelay(r.RetryAfter)
	case statedWait >= minStatedWait:
		rt.delay = statedWait
	default:
		d := rt.backoffPolicy.Delay(rt.info.Attempts, rt.lastDelay)
		if b, ok := rt.backoffPolicy.(defaultPolicy); ok {
			d = b.beforeDeadline(rt.ctx, d, rt.lastDelay)
		}
		rt.lastDelay = d
		rt.delay = boundDelay(r, d)
		if a.resp == nil || a.resp.StatusCode >= 500 {
			rt.backoff += max(min(rt.delay, throttle.Forever-rt.backoff), 0)
		}
	}
	wait = max(wait, rt.delay)
	if rt.delay == backoff.Stop {
		return &settingError{ErrMaxAttempts, "the delay of RetryPolicy.Backoff", "backoff.Stop"}
	}
	maxWait := rt.maxWait
	if held && a.retryAfter <= maxWait {
		maxWait = a.ticket.MaxServerWait
	}
	if err := rt.checkWait(now, max(wait, statedWait), maxWait); err != nil {
		return err
	}
	if rt.backoff > p.MaxBackoff {
		return &settingError{ErrMaxElapsed, "RetryPolicy.MaxBackoff", p.MaxBackoff}
	}
	if err := rt.body.checkReplayable(rt.req); err != nil {
		return err
	}
	if !throttled && !p.Budget.Withdraw(now) { // what a server rejects because of a limit, it expects later
		return ErrRetryBudget
	}
	return nil
}

// minStatedWait is the shortest time until a reset after which a rejected request is sent again without a backoff: some
// servers round their resets down to 0.
const minStatedWait = 10 * time.Millisecond

// maxReleaseDelay bounds the jitter that is added to a Retry-After if the Tracker holds the others, too.
const maxReleaseDelay = 5 * time.Second

// maxSuggestion is by how much a suggested delay may exceed that of Backoff, as in the SDKs of AWS. The Retry-After of a
// failure counts as suggested: gateways state it for as long as they cache an error, also where the next request succeeds.
const maxSuggestion = 5 * time.Second

// boundDelay returns own, the delay of Backoff, or the longer one that r suggests or requires.
func boundDelay(r *headers.Report, own time.Duration) time.Duration {
	if own == backoff.Stop {
		return own
	}
	own = max(own, r.MinDelay)
	return max(own, min(max(r.SuggestedDelay, r.RetryAfter), own+maxSuggestion))
}

// statedWaitOf returns the wait that a rejection states: its Retry-After, or the longest
// reset time of limits that are exhausted or do not state what remains.
func statedWaitOf(r *headers.Report) (d time.Duration) {
	if r.HasRetryAfter {
		return r.RetryAfter
	}
	for _, l := range r.Limits {
		if l.HasReset && (!l.HasRemaining || l.Remaining <= 0) {
			d = max(d, l.ResetAfter)
		}
	}
	return d
}

// hostHeld reports whether the Tracker holds the server's limits for at least minWait, and
// returns the time until they are asked again, or 0 if it is unknown. The queue then
// releases the requests one by one: an additional delay would make the retry late.
func (rt *roundTrip) hostHeld(minWait time.Duration) (wait time.Duration, held bool) {
	m := rt.t.resolved.quota.Demand(rt.req)
	if m.Limiter == nil {
		return 0, false
	}
	d, err := m.Limiter.Reserve(rt.ctx, throttle.Claim{Key: m.Key, Cost: m.Cost, DryRun: true})
	return d.Wait, err == nil && !d.OK && (d.Wait == 0 || max(d.Wait, d.Expected) >= minWait)
}

// widestJitter is the attempt after which the jitter of a Retry-After grows no more: with 1 s it is then up to 2 s. A longer one
// leaves a server idle that rejects what is beyond a number in flight.
const widestJitter = 3

// retryAfterDelay returns the delay of this call outside the queue for a Retry-After.
// Jitter does not increase a stated delay beyond the longest allowed wait.
func (rt *roundTrip) retryAfterDelay(retryAfter time.Duration) time.Duration {
	d := rt.retry.RetryAfterJitter.Delay(retryAfter, min(rt.info.Attempts, widestJitter))
	if retryAfter <= rt.maxWait {
		d = min(d, rt.maxWait)
	}
	return d
}

// isZeroRetryAfter reports whether the server stated a Retry-After of 0, for which
// RetryPolicy.RetryAfterJitter sets no minimum. A date in the past is no 0: clocks differ.
func (rt *roundTrip) isZeroRetryAfter() bool {
	r := &rt.attempt.report
	relative := r.RetryFormat == headers.FormatDeltaSeconds || r.RetryFormat == headers.FormatDeltaMillis
	return relative && r.RetryAfter < time.Microsecond && rt.retry.RetryAfterJitter.Min <= 0
}

// zeroRetryAfterDelay returns the delay after a Retry-After of 0. It is zero after the
// first such response of the call, and a tenth of the delay of Backoff after each later
// one. That delay grows, which limits the load on a server that always states 0.
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
