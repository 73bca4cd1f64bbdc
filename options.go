package heed

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/httphost"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// RequestOptions holds per-request settings that cannot be derived from the http.Request.
// The zero RequestOptions has no effect. The context of the request carries them, also
// through libraries that accept a context and an http.Client:
//
//	ctx = heed.WithOptions(ctx, heed.RequestOptions{Idempotent: true})
type RequestOptions struct {
	// Priority orders waiting requests: those with a higher value are granted first. See
	// queue.Queue.Aging. Zero is the default priority.
	Priority int

	// Tenant is the name of the user or customer that the request belongs to. Tenants that
	// wait for the same limit share it fairly, see queue.Ticket. Requests with an empty
	// Tenant together are one tenant. Each name that waits has a share, so set only names
	// that were authenticated: with invented ones a client gets as many shares.
	Tenant string

	// Weight is the share of Tenant in each limit, relative to the weights of other tenants. Zero, and a
	// negative value, means 1.
	Weight int

	// Cost is the number of units that each attempt takes from Transport.Limiter. Zero
	// means 1. A negative value is an error.
	Cost int64

	// QuotaName names the quota of the server that the request uses, where the URL does not
	// tell, such as a model or a deployment in the body of the request. A rejection of one
	// name holds no request with another name, and all requests of an account with one name
	// share a quota, whatever their paths. Empty means that the path tells.
	QuotaName string

	// Idempotent states that processing the request twice has the same effect as
	// processing it once, whatever its method.
	Idempotent bool

	// NoRetry disables retries of the request.
	NoRetry bool

	// Costs holds the estimated costs of the request in the units that the server counts
	// besides requests, for example {"tokens": 1500}. The request waits until the server
	// has that many units left. Units that the server never mentions in its responses are
	// ignored; see quota.Tracker.DemandUnits. Nil means that only the number of requests is limited.
	Costs map[string]int64

	// NoWait makes the request fail immediately if it would have to wait, in the queue or
	// before a retry. The error matches ErrMaxWait. Retries without a delay remain
	// possible. MaxWait is ignored.
	NoWait bool

	// MaxWait is the longest single wait: in the queue, for any limit, and before a retry.
	// Zero or less means RetryPolicy.MaxServerWait for delays before a retry and for waits that
	// the server imposes, and no limit for waits that the program's own limits impose.
	MaxWait time.Duration
}

// WithOptions returns a context that carries r to the Transport, with the options that ctx carries
// already: fields of r that are not zero replace them, so that what is set cannot be unset. Each layer of a program sets what
// it knows, such as the Priority of a job and the Tenant of an item.
func WithOptions(ctx context.Context, r RequestOptions) context.Context {
	v := settingsFrom(ctx)
	o := &v.options
	if r.QuotaName != "" && r.QuotaName != o.QuotaName {
		ctx = quota.WithName(ctx, r.QuotaName)
	}
	*o = RequestOptions{
		Priority: cmp.Or(r.Priority, o.Priority), Tenant: cmp.Or(r.Tenant, o.Tenant), Weight: cmp.Or(r.Weight, o.Weight),
		Cost: cmp.Or(r.Cost, o.Cost), QuotaName: cmp.Or(r.QuotaName, o.QuotaName), MaxWait: cmp.Or(r.MaxWait, o.MaxWait),
		Idempotent: r.Idempotent || o.Idempotent, NoRetry: r.NoRetry || o.NoRetry, NoWait: r.NoWait || o.NoWait, Costs: o.Costs,
	}
	if r.Costs != nil {
		o.Costs = r.Costs
	}
	return context.WithValue(ctx, settingsKey{}, &v)
}

// OptionsFrom returns the options that ctx carries, or the zero RequestOptions.
func OptionsFrom(ctx context.Context) RequestOptions {
	return settingsFrom(ctx).options
}

// settings are what the context of a request carries for the Transport. They have one key,
// so that a request costs one search of its context.
type settings struct {
	options RequestOptions
	trace   *Trace // of WithTrace; nil if there is none
}

type settingsKey struct{}

// settingsFrom returns the settings that ctx carries, or zero settings.
func settingsFrom(ctx context.Context) settings {
	if v, ok := ctx.Value(settingsKey{}).(*settings); ok {
		return *v
	}
	return settings{}
}

// PerHost returns the scheme and host of the URL of req in canonical form, such as
// "https://api.example.com": in lower case, without the default port of the scheme and
// without a dot at the end of the name. It returns "" if req has no URL. It is a
// Transport.Key for limits per host, and for keys in Transport.Limits.
func PerHost(req *http.Request) string {
	if req.URL == nil {
		return ""
	}
	scheme := strings.ToLower(req.URL.Scheme)
	return scheme + "://" + httphost.Canonical(scheme, req.URL.Host)
}

type attemptKey struct{}

// AttemptFrom returns how many attempts of the request with this context were sent before
// the current one: 0 for the first attempt and outside a Transport, 1 for the first retry.
// Trace and RetryPolicy.BeforeSend count from 1 instead. AttemptFrom is for an
// http.RoundTripper below the Transport. It returns OpenTelemetry's
// http.request.resend_count, which is set only if it is positive.
func AttemptFrom(ctx context.Context) int {
	n, _ := ctx.Value(attemptKey{}).(int)
	return n
}

// Info describes what happened to a request before its response was returned.
type Info struct {
	// Attempts is the number of times that the request was sent, at least 1.
	Attempts int

	// QueueWait is the time that the request waited in the queue, over all attempts.
	QueueWait time.Duration

	// Limit is the name of the limit that caused the longest single wait in the queue, or
	// "" if there was no wait.
	Limit string

	// BackoffWait is the time that the request was delayed outside the queue: by
	// Transport.StartJitter before the first attempt, and between attempts.
	BackoffWait time.Duration

	// Limits holds the server's limits that the headers of the response state, not its body.
	Limits []throttle.RemoteLimit

	// StopReason states why a failed request was not retried. It has the values that
	// GiveUpError.Reason may have. Nil means that heed did not give up: the response is a success, or a
	// failure that is never retried, such as a 404 or any failure with RequestOptions.NoRetry.
	StopReason error
}

// isUneventful reports whether i describes a single attempt without waits that heed did not give up.
func (i Info) isUneventful() bool {
	return i.Attempts == 1 && i.QueueWait+i.BackoffWait <= 0 && i.StopReason == nil
}

// InfoFrom returns the Info of the request that resp answers. It returns false if there
// was one attempt without a wait, and the response is not a failure and states no limits.
func InfoFrom(resp *http.Response) (Info, bool) {
	n := infoContextOf(resp)
	if n == nil {
		n = &infoContext{info: Info{Attempts: 1}}
	}
	info := n.info
	if resp != nil {
		info.Limits = parseReport(n.reader, resp.Request, resp, time.Now()).AppendRemoteLimits(nil)
	}
	if info.Limits == nil && info.isUneventful() {
		return Info{}, false
	}
	return info, true
}

// An infoContext carries an Info in the context of Response.Request. There it survives
// wrappers of the response body, such as the one of http.Client.Timeout, and responses
// without an Info need no allocation.
type infoContext struct {
	context.Context
	info   Info
	reader *headers.Reader // the Tracker's; nil means the zero Reader
	owner  *http.Request   // the request with this context; the Info does not apply to requests derived from it
}

type infoContextKey struct{}

func (n *infoContext) Value(key any) any {
	if key == (infoContextKey{}) {
		return n
	}
	return n.Context.Value(key)
}

// infoContextOf returns the infoContext that roundTrip.finish added to resp, or nil.
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
