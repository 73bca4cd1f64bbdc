package quota

import (
	"context"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// An Exchange carries the limits that servers state, and their rejections, from each process
// to the others, so that a rejection of one process holds all of them. Package quota/fleet has
// an Exchange over any message bus, and package throttleredis one over Redis.
//
//	process A ── 429, Retry-After: 60 ──▶ Publish ──┬──▶ receive   process B waits
//	                                                └──▶ receive   process C waits
//
// Updates may be lost, late or out of order. If one is lost, a process learns of the hold from
// a rejection of its own, as without an Exchange. An Exchange must deliver only updates of
// processes that have the same key, and each at most once to a subscriber, except by Fetch.
type Exchange interface {
	// Key returns the key of the hashes that identify accounts and routes in updates. All
	// processes that share must return the same. If it is empty, only accounts without
	// credentials are shared, because weak credentials could be guessed from their hashes.
	Key() []byte

	// Publish sends u to all subscribers. If u.Keep() is not zero, the Exchange keeps u for
	// that time, in place of an earlier Update with the same Account and Route, and returns
	// it to Fetch. Publish is called while requests wait: it must return immediately,
	// without waiting for subscribers.
	Publish(u Update)

	// Subscribe calls receive with each Update that is published, from now until ctx is
	// done. These may include the updates of the subscriber. Subscribe returns immediately.
	// A Tracker calls it once, before its first request, and ends ctx in Tracker.Close. receive
	// is safe for concurrent use.
	Subscribe(ctx context.Context, receive func(u Update))

	// Fetch passes each Update that is kept of account to subscribers, and then an Update
	// that has this Account and the Kind UpdateFetched. Fetch must return immediately. If
	// the last Update does not arrive, the first requests of the account wait for 100 ms.
	Fetch(account string)
}

// An Update is what one Tracker learned of a quota. It states durations and not instants: the
// clocks of the processes may differ.
type Update struct {
	// Kind is what happened.
	Kind UpdateKind

	// Sender identifies the Tracker that published the Update.
	Sender uint64

	// Account identifies the account: a keyed hash of scheme, host and credentials.
	Account string

	// Route is a keyed hash of a route that uses the quota. Zero means the quota of all routes of
	// which nothing else is known.
	Route uint64

	// Wait is the time until the hold ends, or until its next test if the server has not stated its
	// end (UpdateHold), or the time since the probe was sent (UpdateRelease). Zero for other kinds.
	Wait time.Duration

	// Pause is the time until Sender sends the next probe, because one was rejected (UpdateHold).
	// Zero means that none was rejected since its latest UpdateHold.
	Pause time.Duration

	// Stated is set if the server stated the hold. Otherwise it is estimated.
	Stated bool

	// Limits are the limits of the quota, in requests. Only Name, Limit, Remaining, Per and
	// ResetAfter are set. At most 8 are used.
	Limits []throttle.RemoteLimit

	// Age is the time since the Update was published. Publishers leave it zero.
	Age time.Duration
}

// An UpdateKind is what an Update reports.
type UpdateKind uint8

const (
	// UpdateFetched means that Fetch has returned all that is kept of the account.
	UpdateFetched UpdateKind = iota

	// UpdateHold means that rejections have shown that other requests would be rejected, too, so that
	// requests wait for the time Wait or until a test is accepted, or that a probe was rejected.
	UpdateHold

	// UpdateProbe means that a probe was sent: a request that tests whether the hold is over.
	UpdateProbe

	// UpdateRelease means that the probe was accepted.
	UpdateRelease

	// UpdateLimits means that only Limits have changed.
	UpdateLimits

	// UpdateJoin means that the Tracker begins to use the account.
	UpdateJoin
)

// Keep returns for how long u is of use to processes that fetch it, from its publication on. Zero
// means that it need not be kept. A release is kept for a second, so that it replaces the hold.
func (u *Update) Keep() (keep time.Duration) {
	switch u.Kind {
	case UpdateProbe:
		return 0
	case UpdateHold:
		keep = u.Wait
	case UpdateRelease:
		keep = time.Second
	}
	for _, l := range u.Limits {
		keep = max(keep, l.ResetAfter)
	}
	return keep
}

// aged returns u as of now, without what is over.
func (u Update) aged() Update {
	age := min(max(u.Age, 0), headers.MaxDelay)
	limits := u.Limits
	u.Limits, u.Age, u.Pause = nil, 0, min(max(u.Pause, 0), headers.MaxDelay)
	for _, l := range limits {
		if l.ResetAfter -= age; l.ResetAfter > 0 && statedlimit.CountsRequests(l) && len(u.Limits) < statedlimit.MaxEstimates {
			u.Limits = append(u.Limits, l)
		}
	}
	if u.Kind == UpdateRelease {
		u.Wait = min(max(u.Wait, 0), headers.MaxDelay) + age
	} else {
		u.Wait = min(max(u.Wait-age, 0), headers.MaxDelay)
	}
	return u
}
