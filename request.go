package heed

import (
	"context"
	"time"
)

// A RequestOptions says of one request what the Transport cannot know. The zero Request
// says nothing. It travels in the context, and so through any library that takes
// a context and an http.Client:
//
//	ctx = heed.WithOptions(ctx, heed.RequestOptions{Idempotent: true})
type RequestOptions struct {
	Priority   int   // higher goes first in line
	Cost       int64 // units of Transport.Limiter; 0: 1, negative is an error
	Idempotent bool  // doing it twice is the same as once, whatever its method
	NoRetry    bool  // send it once at most

	// Costs is what the request takes of what the server counts beside requests, by
	// unit: {"tokens": 1500}. It waits until the server has said that so much is
	// left, if the server speaks of that unit at all; see quota.Tracker.DemandUnits.
	// nil: not known, and nothing but requests is counted.
	Costs map[string]int64

	// NoWait has the request fail immediately where it would have to wait, in line or
	// between attempts, with an error that matches ErrMaxWait. What remains are retries
	// without a delay. MaxWait is then not looked at.
	NoWait bool

	MaxWait time.Duration // longest wait in line or between attempts, each; 0: any for limits of our own, else RetryPolicy.MaxWait
}

// WithOptions returns a context that carries r to the Transport. It replaces what an
// earlier With said.
func WithOptions(ctx context.Context, r RequestOptions) context.Context {
	return context.WithValue(ctx, requestKey{}, &r)
}

// OptionsFrom returns what With put into ctx, or the zero Request.
func OptionsFrom(ctx context.Context) RequestOptions {
	if r, ok := ctx.Value(requestKey{}).(*RequestOptions); ok {
		return *r
	}
	return RequestOptions{}
}

type requestKey struct{}
