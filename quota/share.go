package quota

import (
	"context"
	"time"
)

// An Exchange carries what servers said from each process of a fleet to all others, so
// that a refusal which one of them met closes the gate in all, and each does not
// have to meet its own. Package throttleredis has one on Redis; another is a few
// lines over any bus that the processes have.
//
//	process A ── 429, Retry-After: 60 ──▶ Post ──┬──▶ hear   process B waits
//	                                             └──▶ hear   process C waits
//
// What it carries is opaque, and says for how long something holds, not until
// when: the clocks of the machines need not agree, but for a day. Messages may be lost,
// repeated, late or out of order. A lost one costs what no Exchange would: a refusal of
// one's own. A message that is garbled, was made without Tracker.Secret, or was heard
// before is ignored: each carries a sequence number and a time, authenticated by
// Tracker.Secret.
//
// Of the processes that wait for one gate mostly one sends the first request, and
// the others go when they hear of its answer, or when they have not for a while.
type Exchange interface {
	// Publish hands m to all subscribers. If m.Keep is not 0 it is kept for so long,
	// for those who Fetch it, in place of what was kept of its Account and Bucket.
	// Publish is called while others wait in line: it must return at once, and not
	// wait for subscribers.
	Publish(m Update)

	// Subscribe calls receive with each update that is published, from now until ctx is
	// done; updates that the same process published may be among them. It returns
	// immediately. A Tracker calls it once, before its first request, and ends ctx when it
	// is closed; an Exchange that cannot end a subscription may ignore that.
	Subscribe(ctx context.Context, receive func(u Update))

	// Fetch has hear called with what is kept of account, and then with an Update
	// that has no News. It must return at once. If that message does not come, the
	// first requests of the account wait for 100 ms in vain.
	Fetch(account string)
}

// An Update is what an Exchange carries.
type Update struct {
	Account string        // whom it concerns: a keyed hash of scheme, host and credential
	Bucket  string        // which of the quotas of that account
	News    string        // what was said; "": that was all that was kept of Account
	Keep    time.Duration // for how long it may be of use to those who come later; 0: not at all
	Age     time.Duration // since it was posted, as far as the Exchange knows; it counts on top of the way
}
