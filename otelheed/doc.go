// Package otelheed exports metrics and spans of package heed to OpenTelemetry.
//
//	tracker := &quota.Tracker{}
//	telemetry, err := otelheed.New(otelheed.Config{Quota: tracker})
//	…
//	client := heed.NewClient(&heed.Transport{
//		Base:  otelhttp.NewTransport(telemetry.RoundTripper(http.DefaultTransport)),
//		Quota: tracker,
//		Trace: telemetry.Trace(),
//	})
//
// # Metrics
//
// otelhttp measures each attempt (http.client.request.duration). This package measures what
// heed adds. All durations are in seconds.
//
//	heed.client.call.duration           histogram, calls with all waits and attempts
//	heed.client.call.retries            histogram, retries of calls that were retried
//	heed.client.call.retry_delay        histogram, time between attempts of such calls
//	heed.client.request.time_in_queue   histogram, waits by heed.limit.name, heed.reason, heed.result
//	heed.client.queued_requests         gauge, requests that wait now
//	heed.client.attempts                attempts that got a response or failed
//	heed.client.throttled               responses that reject a request because of a limit
//	heed.client.retries.rejected         failed attempts that are not retried, by heed.reason
//	heed.client.quota.limit             gauges for the limits of servers:
//	heed.client.quota.remaining           by server.address, heed.quota.name, heed.quota.unit, heed.quota.known
//	heed.client.quota.utilization
//	heed.client.quota.reset
//	heed.client.quota.hold              gauge, time until a server may be sent requests again
//	heed.client.quota.rate              gauge, learned rate in requests per second
//	heed.client.quota.concurrency       gauge, estimated maximum number of requests in flight
//	heed.client.retry_budget.remaining  gauge, retries that the budget permits now
//	heed.server.requests                decisions of a throttlehttp.Middleware or a rules file
//	heed.server.request.time_in_queue   histogram, waits in the Queue of a Middleware
//	heed.server.near_limit              granted requests that left less than a fifth of a limit
//	heed.store.operation.duration       histogram, calls to Redis
//	heed.store.degraded                 decisions without Redis
//
// No attribute has a value from a key, a credential, a path or a query. At most
// Config.MaxServers servers, those that were used recently, have attributes of their own, and all
// that are described by gauges for quotas. Other attributes have at most 100 values. Further
// values are "_OTHER". A request that its caller canceled is no error: it has no error.type.
//
// # Spans
//
// A wait in the queue is a span, heed.wait, below the span of the caller. A retry and the end
// of a call that fails are events of the caller's span. Each has an attribute heed.description
// with the sentence that is also in errors and logs: "waited 1.2 s for quota
// api.example.com (retry-after), 3 ahead". Nothing is added to spans that are not recorded.
package otelheed
