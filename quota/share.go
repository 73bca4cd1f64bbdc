package quota

import (
	"context"
	"time"
)

// An Exchange carries the limits that servers state, and their rejections, from each process
// to the others, so that a rejection of one process holds all of them. Package throttleredis
// implements an Exchange with Redis. Any publish/subscribe system can be used to implement
// another.
//
//	process A ── 429, Retry-After: 60 ──▶ Publish ──┬──▶ receive   process B waits
//	                                                └──▶ receive   process C waits
//
// Updates are opaque to the Exchange. They state durations and not instants: the clocks of
// the processes may differ by up to a day. Updates may be lost, repeated, late or out of order. If
// one is lost, a process learns of the hold from a rejection of its own, as without an
// Exchange. An Update is ignored if it is malformed, was not authenticated with the same
// Tracker.Secret, or was received before: each has a sequence number and a time.
//
// When a hold ends, usually one process sends the probe. The others send requests when they
// receive its result, or after a short time without one.
type Exchange interface {
	// Publish sends m to all subscribers. If m.Keep is not zero, the Exchange keeps m for
	// that time, in place of an earlier Update with the same Account and Bucket, and returns
	// it to Fetch. Publish is called while requests wait: it must return immediately,
	// without waiting for subscribers.
	Publish(m Update)

	// Subscribe calls receive with each Update that is published, from now until ctx is
	// done. These may include the updates of the same process. Subscribe returns
	// immediately. A Tracker calls it once, before its first request, and ends ctx in
	// Tracker.Close; an Exchange that cannot end a subscription may ignore that.
	Subscribe(ctx context.Context, receive func(u Update))

	// Fetch calls the function passed to Subscribe with each Update that is kept of account,
	// and then with an Update that has this Account and no News. Fetch must return
	// immediately. If the last Update does not arrive, the first requests of the account
	// wait for 100 ms.
	Fetch(account string)
}

// An Update is a message between the Trackers of several processes.
type Update struct {
	// Account identifies the account: a keyed hash of scheme, host and credentials.
	Account string

	// Bucket identifies the quota among those of Account.
	Bucket string

	// News is the encoded content. Empty means that Fetch has returned everything that is
	// kept of Account.
	News string

	// Keep is how long the Exchange keeps the Update for Fetch. Zero means that it need not
	// be kept.
	Keep time.Duration

	// Age is the time since the Update was published, as far as the Exchange knows.
	// Receivers add the transmission delay that they detect themselves.
	Age time.Duration
}
