package metrics

import (
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/explain"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// A Recorder passes measurements to its Sink. It bounds the values of their attributes.
type Recorder struct {
	sink    Sink
	max     int // number of servers, and of limits
	servers servers
	limits  limitNames
	quotas  bounded
	units   bounded
	types   bounded

	mu     sync.Mutex
	queued map[queueKey]int // requests that wait now
}

// A queueKey is the limit that a request waits for.
type queueKey struct{ limit, reason string }

// NewRecorder returns a Recorder for a Sink. It names at most maxServers servers and as many
// limits; zero or less means 100.
func NewRecorder(s Sink, maxServers int) *Recorder {
	if maxServers <= 0 {
		maxServers = defaultServers
	}
	r := &Recorder{
		sink: s, max: maxServers, queued: map[queueKey]int{},
		quotas: bounded{max: maxQuotas}, units: bounded{max: maxUnits}, types: bounded{max: maxTypes},
	}
	r.servers.recentSet = recentSet[server]{max: maxServers, forget: func(v server) {
		s.Forget([]string{Address, Port}, []string{v.address, v.port})
	}}
	r.limits.recentSet = recentSet[string]{max: maxServers, forget: func(v string) {
		s.Forget([]string{LimitName}, []string{v})
	}}
	return r
}

// ClientTrace returns a Trace that records the calls of a heed.Transport.
func (r *Recorder) ClientTrace() *heed.Trace {
	return &heed.Trace{WaitStart: r.waitStart, WaitDone: r.waitDone, AttemptDone: r.attemptDone, Done: r.done}
}

func (r *Recorder) waitStart(_ *http.Request, i heed.WaitInfo) {
	if !i.At.IsZero() {
		r.queue(i.Limit, 1)
	}
}

func (r *Recorder) waitDone(req *http.Request, i heed.WaitInfo) {
	if !i.At.IsZero() {
		r.queue(i.StartLimit, -1)
	}
	if i.Waited > 0 || i.Err != nil {
		k := queueKeyOf(i.Limit)
		r.sink.Record(req.Context(), &clientTimeInQueue, i.Waited.Seconds(), Labels{r.limits.value(k.limit), k.reason, resultOf(req.Context(), i.Err)})
	}
}

// queue adds n to the requests that wait for the limit with a name.
func (r *Recorder) queue(name string, n int) {
	k := queueKeyOf(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queued[k] += n; r.queued[k] == 0 {
		delete(r.queued, k)
	}
}

// queueKeyOf returns the values of LimitName and Reason for the name of a limit. The name of
// a quota is its host: the rest may be a path.
func queueKeyOf(name string) queueKey {
	limit, reason := explain.SplitLimit(name)
	if reason == "" {
		return queueKey{limit: limit}
	}
	if strings.HasPrefix(reason, "quota of ") {
		reason = "quota"
	}
	host, _, _ := strings.Cut(limit, "/")
	return queueKey{host, reason}
}

// WaitResult returns the values of Result and ErrorType for a wait of a request with ctx that
// ended with err. The error type is "" if the request was granted or canceled.
func (r *Recorder) WaitResult(ctx context.Context, err error) (result, errorType string) {
	return resultOf(ctx, err), r.ErrorType(ctx, err)
}

// resultOf returns the result of a wait that ended with err.
func resultOf(ctx context.Context, err error) string {
	var rejected *throttle.RejectedError
	switch {
	case err == nil:
		return "acquired"
	case isCanceled(ctx, err):
		return "canceled"
	case errors.Is(err, heed.ErrMaxWait), errors.Is(err, heed.ErrMaxElapsed), errors.Is(err, context.DeadlineExceeded):
		return "too_long"
	case errors.As(err, &rejected) && rejected.Decision.Wait > 0 && rejected.Decision.Wait < throttle.Forever:
		return "too_long"
	case errors.Is(err, throttle.ErrRejected), errors.Is(err, queue.ErrClosed):
		return "rejected"
	}
	return "failed"
}

func (r *Recorder) attemptDone(req *http.Request, i heed.AttemptInfo) {
	s := r.servers.of(req.URL)
	r.sink.Record(req.Context(), &clientAttempts, 1, Labels{s.address, s.port, statusValue(i.Status)})
	if i.Outcome == throttle.Throttled && i.Status > 0 {
		r.sink.Record(req.Context(), &clientThrottled, 1, Labels{s.address, s.port, statusValue(i.Status), strconv.FormatBool(i.RetryAfter > 0)})
	}
}

// stopReason returns the value of Reason for a failed attempt that is not retried.
func stopReason(err error) string {
	switch {
	case errors.Is(err, heed.ErrRetryBudget):
		return "budget"
	case errors.Is(err, heed.ErrMaxAttempts):
		return "attempts"
	case errors.Is(err, heed.ErrNotIdempotent):
		return "unsafe"
	case errors.Is(err, heed.ErrBodyNotReplayable):
		return "body"
	case errors.Is(err, heed.ErrRetryForbidden):
		return "server"
	case errors.Is(err, heed.ErrMaxElapsed), errors.Is(err, heed.ErrMaxWait), errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	}
	return "other"
}

func (r *Recorder) done(req *http.Request, i heed.DoneInfo) {
	ctx, s := req.Context(), r.servers.of(req.URL)
	l := Labels{methodValue(req.Method), s.address, s.port}
	if i.Attempts > 1 {
		r.sink.Record(ctx, &callRetries, float64(i.Attempts-1), l)
		r.sink.Record(ctx, &callRetryDelay, i.RetryDelay.Seconds(), l)
	}
	l[3] = statusValue(i.Status)
	switch {
	case i.Err != nil:
		l[4] = r.ErrorType(ctx, i.Err)
	case i.Status >= 400:
		l[4] = l[3]
	}
	r.sink.Record(ctx, &callDuration, i.Duration.Seconds(), l)
	if i.StopReason != nil && i.Attempts > 0 && !isCanceled(ctx, i.StopReason) {
		r.sink.Record(ctx, &retriesRejected, 1, Labels{s.address, s.port, stopReason(i.StopReason)})
	}
}

// statusValues are the texts of usual status codes.
var statusValues = func() (all [600]string) {
	for i := 100; i < len(all); i++ {
		all[i] = strconv.Itoa(i)
	}
	return all
}()

// statusValue returns the text of a status code, or "" if there is none.
func statusValue(status int) string {
	if status < 100 || status >= len(statusValues) {
		return ""
	}
	return statusValues[status]
}

// ErrorType returns the value of error.type for err, an error of a request with ctx. It is ""
// if err is nil or the caller canceled the request.
func (r *Recorder) ErrorType(ctx context.Context, err error) string {
	if err == nil || isCanceled(ctx, err) {
		return ""
	}
	var timeout net.Error
	switch {
	case errors.Is(err, throttle.ErrRejected), errors.Is(err, heed.ErrMaxWait):
		return "rejected"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return r.types.value(typeOf(err))
}

// isCanceled reports whether the caller canceled a request with ctx that ended with err.
func isCanceled(ctx context.Context, err error) bool {
	return ctx.Err() == context.Canceled || errors.Is(err, context.Canceled)
}

// typeOf returns the name of the type of err, or of the error that it wraps if its own type
// says nothing of the cause.
func typeOf(err error) string {
	var g *heed.GiveUpError
	if errors.As(err, &g) && g.Err != nil {
		err = g.Err
	} else if errors.As(err, &g) && g.Reason != nil {
		err = g.Reason
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil || strings.Contains(reflect.TypeOf(err).String(), "net.OpError") {
			break
		}
		err = inner
	}
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() == "" {
		return t.String()
	}
	return t.PkgPath() + "." + t.Name()
}

// ServerDecision records the decision d of the limit with a name about a request of a client.
func (r *Recorder) ServerDecision(limit string, d throttle.Decision) {
	r.serverDecision(context.Background(), limit, d)
}

func (r *Recorder) serverDecision(ctx context.Context, limit string, d throttle.Decision) {
	name, result := r.limits.value(limit), "acquired"
	switch {
	case !d.OK:
		result = "rejected"
	case d.OverLimit:
		result = "over_limit"
	}
	r.sink.Record(ctx, &serverRequests, 1, Labels{name, result})
	if d.OK && !d.OverLimit && d.Limit >= 5 && d.Remaining < d.Limit/5 {
		r.sink.Record(ctx, &serverNearLimit, 1, Labels{name})
	}
}

// MiddlewareTrace returns a Trace that records the decisions of a throttlehttp.Middleware.
func (r *Recorder) MiddlewareTrace() *throttlehttp.Trace {
	return &throttlehttp.Trace{
		Decided: func(req *http.Request, d throttle.Decision) { r.serverDecision(req.Context(), d.Policy, d) },
		Failed: func(req *http.Request, _ error, open bool) {
			result := "failed_closed"
			if open {
				result = "failed_open"
			}
			r.sink.Record(req.Context(), &serverRequests, 1, Labels{"", result})
		},
	}
}

// ServerQueueTrace returns a Trace that records the waits in the Queue of a
// throttlehttp.Middleware.
func (r *Recorder) ServerQueueTrace() *queue.Trace {
	record := func(t *queue.Ticket, err error) {
		if t.Waited() > 0 {
			limit, _, _ := t.WaitedFor()
			r.sink.Record(context.Background(), &serverTimeInQueue, t.Waited().Seconds(), Labels{r.limits.value(limit), resultOf(context.Background(), err)})
		}
	}
	return &queue.Trace{Granted: func(t *queue.Ticket) { record(t, nil) }, Failed: record}
}

// StoreOperation records a call to the store of shared limits.
func (r *Recorder) StoreOperation(name string, took time.Duration, err error) {
	r.sink.Record(context.Background(), &storeDuration, took.Seconds(), Labels{name, r.ErrorType(context.Background(), err)})
}

// StoreDegraded records that mode decided instead of the store, because of err.
func (r *Recorder) StoreDegraded(mode string, err error) {
	r.sink.Record(context.Background(), &storeDegraded, 1, Labels{mode, r.ErrorType(context.Background(), err)})
}
