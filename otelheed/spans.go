package otelheed

import (
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/metrics"
)

// descriptionKey is the key of the sentence that describes a wait, a retry or a failure.
const descriptionKey = attribute.Key("heed.description")

// spans adds what heed does to the spans of callers.
type spans struct {
	tracer   trace.Tracer
	recorder *metrics.Recorder
}

func (s spans) trace() *heed.Trace {
	return &heed.Trace{WaitDone: s.waitDone, Retry: s.retry, Done: s.done}
}

// waitDone adds a span for a wait that has ended. Its beginning is known only now.
func (s spans) waitDone(req *http.Request, i heed.WaitInfo) {
	if i.Waited <= 0 || !trace.SpanFromContext(req.Context()).IsRecording() {
		return
	}
	start := i.At
	if start.IsZero() { // a limiter that blocks was waited for
		start = time.Now().Add(-i.Waited)
	}
	result, errorType := s.recorder.WaitResult(req.Context(), i.Err)
	_, span := s.tracer.Start(req.Context(), "heed.wait", trace.WithTimestamp(start), trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(
		descriptionKey.String(i.String()),
		attribute.String(metrics.LimitName, i.Limit),
		attribute.String(metrics.Result, result),
		attribute.Int("heed.ahead", i.Ahead),
		attribute.Int("heed.attempt", i.Attempt),
	))
	if i.Reason != "" {
		span.SetAttributes(attribute.String(metrics.Reason, i.Reason))
	}
	if errorType != "" {
		span.SetAttributes(semconv.ErrorTypeKey.String(errorType))
		span.SetStatus(codes.Error, i.String())
	}
	span.End(trace.WithTimestamp(start.Add(i.Waited)))
}

func (s spans) retry(req *http.Request, i heed.RetryInfo) {
	if span := trace.SpanFromContext(req.Context()); span.IsRecording() {
		span.AddEvent("heed.retry", trace.WithAttributes(descriptionKey.String(i.String()), attribute.Int("heed.attempt", i.Attempt)))
	}
}

func (s spans) done(req *http.Request, i heed.DoneInfo) {
	if i.StopReason == nil {
		return
	}
	if span := trace.SpanFromContext(req.Context()); span.IsRecording() {
		span.AddEvent("heed.give_up", trace.WithAttributes(descriptionKey.String(i.String()), attribute.Int("heed.attempts", i.Attempts)))
	}
}

// A resendCounter sets http.request.resend_count on the span of each attempt.
type resendCounter struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c *resendCounter) RoundTrip(req *http.Request) (*http.Response, error) {
	if n := heed.AttemptFrom(req.Context()) + redirects(req); n > 0 {
		trace.SpanFromContext(req.Context()).SetAttributes(semconv.HTTPRequestResendCount(n))
	}
	return c.base.RoundTrip(req)
}

// redirects returns how many redirects led to req.
func redirects(req *http.Request) (n int) {
	for resp := req.Response; resp != nil && resp.Request != nil; resp = resp.Request.Response {
		n++
	}
	return n
}

// CloseIdleConnections closes the idle connections of the base, if it has such a method.
// http.Client.CloseIdleConnections calls it.
func (c *resendCounter) CloseIdleConnections() {
	if b, ok := c.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}
