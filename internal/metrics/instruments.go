// Package metrics derives the measurements that packages otelheed and promheed export from
// the events of packages heed, throttlehttp, rules/monitor and throttleredis. Both export the
// same instruments with the same values.
package metrics

import "context"

// A Kind is a kind of instrument.
type Kind uint8

const (
	Counter Kind = iota // a sum that only grows
	Histogram
	Gauge // reported when metrics are collected
)

// An Instrument describes one instrument by its name in OpenTelemetry.
type Instrument struct {
	Name        string
	Unit        string // by UCUM
	Description string
	Kind        Kind
	Buckets     []float64 // upper bounds of a Histogram
	Attributes  []string  // keys, in the order of Labels
}

// maxLabels is the maximum number of attributes of an instrument.
const maxLabels = 5

// Labels are the values of the attributes of an Instrument, in their order. An attribute with
// the value "" is not set.
type Labels [maxLabels]string

// A Sink receives the measurements of counters and histograms.
type Sink interface {
	Record(ctx context.Context, i *Instrument, value float64, l Labels)

	// Forget is called when attributes will not have the given values for some time, so that
	// their series need not be kept. The keys are those of a server or of a limit.
	Forget(keys, values []string)
}

// Keys of attributes.
const (
	Method     = "http.request.method"
	Address    = "server.address"
	Port       = "server.port"
	Status     = "http.response.status_code"
	ErrorType  = "error.type"
	LimitName  = "heed.limit.name"
	Reason     = "heed.reason"
	Result     = "heed.result"
	Stated     = "heed.stated"
	QuotaName  = "heed.quota.name"
	QuotaUnit  = "heed.quota.unit"
	QuotaKnown = "heed.quota.known"
	StoreMode  = "heed.store.mode"
	StoreCall  = "heed.store.operation"
	BatchName  = "heed.batch.name"
	BatchKind  = "heed.batch.kind"
	BatchState = "heed.batch.state"
	otherValue = "_OTHER" // of an attribute with too many values, as the semantic conventions have it
)

// seconds are the buckets of durations: those of client-go, and the longest wait that a
// RetryPolicy permits by default.
var seconds = []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120}

var (
	callDuration = Instrument{
		Name: "heed.client.call.duration", Unit: "s", Kind: Histogram, Buckets: seconds,
		Description: "Duration of calls, from the request to the response headers or the error, with all waits and attempts.",
		Attributes:  []string{Method, Address, Port, Status, ErrorType},
	}
	callRetries = Instrument{
		Name: "heed.client.call.retries", Unit: "{retry}", Kind: Histogram, Buckets: []float64{1, 2, 3, 4, 5},
		Description: "Number of retries of calls that were retried.",
		Attributes:  []string{Method, Address, Port},
	}
	callRetryDelay = Instrument{
		Name: "heed.client.call.retry_delay", Unit: "s", Kind: Histogram, Buckets: seconds,
		Description: "Time without an attempt in flight between the attempts of calls that were retried.",
		Attributes:  []string{Method, Address, Port},
	}
	clientTimeInQueue = Instrument{
		Name: "heed.client.request.time_in_queue", Unit: "s", Kind: Histogram, Buckets: seconds,
		Description: "Time that requests waited for a limit. Requests that did not have to wait are not counted.",
		Attributes:  []string{LimitName, Reason, Result},
	}
	clientQueued = Instrument{
		Name: "heed.client.queued_requests", Unit: "{request}", Kind: Gauge,
		Description: "Number of requests that wait for a limit.",
		Attributes:  []string{LimitName, Reason},
	}
	clientAttempts = Instrument{
		Name: "heed.client.attempts", Unit: "{attempt}", Kind: Counter,
		Description: "Number of attempts that got a response or failed: requests as servers see them.",
		Attributes:  []string{Address, Port, Status},
	}
	clientThrottled = Instrument{
		Name: "heed.client.throttled", Unit: "{response}", Kind: Counter,
		Description: "Number of responses that reject a request because of a limit of the server.",
		Attributes:  []string{Address, Port, Status, Stated},
	}
	retriesRejected = Instrument{
		Name: "heed.client.retries.rejected", Unit: "{retry}", Kind: Counter,
		Description: "Number of failed attempts that could be retried but were not.",
		Attributes:  []string{Address, Port, Reason},
	}
	quotaLimit = Instrument{
		Name: "heed.client.quota.limit", Unit: "{unit}", Kind: Gauge,
		Description: "Size of a quota of a server.",
		Attributes:  quotaAttributes,
	}
	quotaRemaining = Instrument{
		Name: "heed.client.quota.remaining", Unit: "{unit}", Kind: Gauge,
		Description: "Units of a quota that are left, less those of requests in flight.",
		Attributes:  quotaAttributes,
	}
	quotaUtilization = Instrument{
		Name: "heed.client.quota.utilization", Unit: "1", Kind: Gauge,
		Description: "Used part of a quota.",
		Attributes:  quotaAttributes,
	}
	quotaReset = Instrument{
		Name: "heed.client.quota.reset", Unit: "s", Kind: Gauge,
		Description: "Time until units of a quota come back.",
		Attributes:  quotaAttributes,
	}
	quotaHold = Instrument{
		Name: "heed.client.quota.hold", Unit: "s", Kind: Gauge,
		Description: "Time until the end of a hold that the server stated, or else until one request may be sent as a test.",
		Attributes:  []string{Address, Port, Reason},
	}
	quotaRate = Instrument{
		Name: "heed.client.quota.rate", Unit: "{request}/s", Kind: Gauge,
		Description: "Learned rate at which requests are sent: the lowest of the quotas of a server.",
		Attributes:  []string{Address, Port},
	}
	quotaConcurrency = Instrument{
		Name: "heed.client.quota.concurrency", Unit: "{request}", Kind: Gauge,
		Description: "Estimated maximum number of requests in flight: the lowest of the quotas of a server.",
		Attributes:  []string{Address, Port, Reason},
	}
	budgetRemaining = Instrument{
		Name: "heed.client.retry_budget.remaining", Unit: "{retry}", Kind: Gauge,
		Description: "Number of retries that the retry budget permits now.",
	}
	quotaAttributes = []string{Address, Port, QuotaName, QuotaUnit, QuotaKnown}

	batchItems = Instrument{
		Name: "heed.batch.items", Unit: "{item}", Kind: Gauge,
		Description: "Number of items of a job, or of requests of an Outbox since it was opened.",
		Attributes:  []string{BatchName, BatchKind, BatchState},
	}
	batchTimeLeft = Instrument{
		Name: "heed.batch.time_left", Unit: "s", Kind: Gauge,
		Description: "Estimated time until nothing is left of a job or an Outbox. It is not reported while it is not known.",
		Attributes:  []string{BatchName, BatchKind},
	}
	batchFirstAge = Instrument{
		Name: "heed.batch.first_age", Unit: "s", Kind: Gauge,
		Description: "Time since the first request of an Outbox became the first: the Outbox does not advance meanwhile.",
		Attributes:  []string{BatchName},
	}

	serverRequests = Instrument{
		Name: "heed.server.requests", Unit: "{request}", Kind: Counter,
		Description: "Number of decisions about requests of clients.",
		Attributes:  []string{LimitName, Result},
	}
	serverTimeInQueue = Instrument{
		Name: "heed.server.request.time_in_queue", Unit: "s", Kind: Histogram, Buckets: seconds,
		Description: "Time that requests of clients waited for a limit. Requests that did not have to wait are not counted.",
		Attributes:  []string{LimitName, Result},
	}
	serverNearLimit = Instrument{
		Name: "heed.server.near_limit", Unit: "{request}", Kind: Counter,
		Description: "Number of granted requests that left less than a fifth of their limit.",
		Attributes:  []string{LimitName},
	}
	storeDuration = Instrument{
		Name: "heed.store.operation.duration", Unit: "s", Kind: Histogram, Buckets: seconds,
		Description: "Duration of calls to the store of shared limits.",
		Attributes:  []string{StoreCall, ErrorType},
	}
	storeDegraded = Instrument{
		Name: "heed.store.degraded", Unit: "{decision}", Kind: Counter,
		Description: "Number of decisions that were made without the store of shared limits.",
		Attributes:  []string{StoreMode, ErrorType},
	}
)

// Instruments returns all instruments.
func Instruments() []*Instrument {
	return []*Instrument{
		&callDuration, &callRetries, &callRetryDelay, &clientTimeInQueue, &clientQueued, &clientAttempts, &clientThrottled, &retriesRejected,
		&quotaLimit, &quotaRemaining, &quotaUtilization, &quotaReset, &quotaHold,
		&quotaRate, &quotaConcurrency, &budgetRemaining, &batchItems, &batchTimeLeft, &batchFirstAge,
		&serverRequests, &serverTimeInQueue, &serverNearLimit, &storeDuration, &storeDegraded,
	}
}
