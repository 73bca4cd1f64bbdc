// Package hold decides when rejections of a server make other requests of the same quota wait.
package hold

import (
	"cmp"
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A Hold makes the requests of a quota wait while the server rejects them.
//
// One rejection shows that one request is rejected, and not that others would be: one resource, tenant or
// backend may be. So a rejection only begins a suspicion, which delays nothing. Others wait when requests that
// were sent after that rejection had arrived are rejected as well:
//
//	sent        1  2  3  4  5  6  7  8
//	response          ✗ 1   ✗ 4 ✗ 5 ✗ 6 ✗ 7
//	                  │ suspected     │ held
//
//	              ✗             enough ✗            until, or a test ✓
//	none ───────────▶ suspected ─────────▶ held ──────────────────────▶ none
//	  ▲                   │ ✓                                             │
//	  └───────────────────┘                                               ▼
//	                                                     what waited is sent at a growing rate
//
// Enough are as many as random rejections in the share of late would produce once in a hundred times, if more in flight
// than usual do not explain all of them, and if half of them are not repeated: a request that was rejected before may be
// rejected for what it is. Those that are not repeated must be most of what was sent up to the latest rejected one, repeated
// rejections aside, because many servers reject faster than they accept:
//
//	sent        1  2  3  4  5  6  7  8  9  10  11  12
//	response          ✗ 1   ✗ 4     ✗ 8      ✗ 10    ✗ 12      ✓ 5 ...: four of nine are not enough
//
// What was sent includes requests that fail, or whose callers give up. Each hold that proves to be wrong doubles the number, so that
// wrong holds become rare however many requests there are, and each that proves to be right halves it. After two right ones in a
// row the first rejection begins the next hold, as it does while what has waited for a right one is being sent.
//
// A hold lasts until the latest time that a rejection stated. Then it goes on if most of what is sent, up to the latest rejected
// request, is rejected and not repeated. If none stated a time, it lasts until a test is accepted. The acceptance of a request that
// was sent after all rejected ones, and after the first rejection had arrived, ends it, too: two that were sent before may have
// arrived in another order. After the stated end, any that was sent since then does.
//
// A Hold is not safe for concurrent use. The zero Hold delays nothing.
type Hold struct {
	Suspected bool      // a request was rejected, and no later one was accepted
	Held      bool      // others wait
	Until     time.Time // the latest time that a rejection stated; zero: none stated one
	Since     time.Time // when the first rejection arrived
	Latest    time.Time // when the latest one arrived
	Highest   uint64    // highest number of a claim that was rejected
	Server    bool      // the latest rejection was a 5xx
	Ending    bool      // the stated end has passed, and what has waited is being sent
	Rejected  int       // tests that were rejected while it was held, and how often it went on

	first     uint64    // claim whose rejection began the suspicion, or sentBy if it is not of this quota
	sentBy    uint64    // latest claim that was sent when the first rejection arrived
	from      uint64    // claim after which rejections count: sentBy, or the latest one when the stated end passed
	next      time.Time // the latest time that others stated since the stated end: the next one, if the hold goes on
	row       int       // rejections of claims after from
	others    int       // of these, requests that were not repeated
	uncrowded bool      // one of these was sent with no more in flight than others that were accepted
	needed    int       // so many of them begin the hold, or continue it
	share     float64   // part of the responses before that were rejections or failures
	before    float64   // share of the hold before, if that was right, otherwise 0: it has explained the rejections, which no longer count
	doubt     uint8     // holds that proved to be wrong, less those that proved to be right
	right     uint8     // holds in a row that proved to be right, at most trusted
	against   uint8     // of the claims after first up to sentBy, so many more were accepted than rejected; of all suspicions
}

const (
	leastRow    = 4                // least number of further rejections that begin a hold
	single      = 4                // so many more acceptances than rejections show that rejections concern single requests
	chance      = 0.01             // that random rejections begin a hold
	rightChance = 0.1              // that they reject its tests, too
	maxDoubt    = 12               // doublings of the number of rejections
	trusted     = 2                // holds in a row that were right, after which the first rejection begins the next one
	rounding    = time.Second      // of stated ends, which are rounded up
	forgotten   = 10 * time.Second // time without a rejection, and after its stated end, after which a suspicion ends
)

// A Rejection describes a rejected request, as far as it concerns a hold.
type Rejection struct {
	Claim    uint64        // its number
	Sent     uint64        // number of the latest claim that was sent
	After    time.Duration // wait that the server stated; 0: none
	Server   bool          // it is a 5xx
	Crowded  bool          // more were in flight than when others were accepted, which may be the reason
	Repeated bool          // the same request was rejected before, and may be rejected for what it is
	Released bool          // what has waited for a hold is being sent
	Share    float64       // part of the latest responses that were rejections or failures
}

// Add applies a rejection that arrived now. It reports whether others wait from now on.
func (h *Hold) Add(r Rejection, now time.Time) (begins bool) {
	if h.Suspected && (!h.Held || h.Ending) && now.Sub(ticks.Later(h.Latest, h.Until)) > forgotten {
		h.Suspected, h.Held, h.Ending = false, false, false // no request has been accepted or rejected since
	}
	first := !h.Suspected
	if first {
		h.Suspected, h.Since, h.Until, h.first, h.sentBy, h.Rejected, h.Highest = true, now, time.Time{}, cmp.Or(r.Claim, r.Sent), r.Sent, 0, 0
		h.from, h.row, h.others, h.uncrowded = r.Sent, 0, 0, false
		h.needed, h.share = neededRow(r.Share)<<h.doubt, max(r.Share, h.before)
	}
	if r.Claim > h.first && r.Claim <= h.sentBy && !r.Repeated {
		h.against -= min(h.against, 1)
	}
	h.Highest = max(h.Highest, r.Claim)
	if !first && r.Claim > h.from {
		h.row++
		h.uncrowded = h.uncrowded || !r.Crowded
		if !r.Repeated {
			h.others++
			if r.After > 0 {
				h.next = ticks.Later(h.next, now.Add(r.After))
			}
		}
	}
	enough := h.enough()
	switch {
	case h.Ending && !enough:
		return false
	case h.Ending: // it goes on
		h.Ending, h.Until, h.Rejected = false, h.next, h.Rejected+1
	}
	h.Latest, h.Server = now, r.Server
	if r.After > 0 {
		h.Until = ticks.Later(h.Until, now.Add(r.After))
	}
	known := h.right >= trusted || h.right > 0 && r.Released
	if h.Held || !enough && !known {
		return false
	}
	h.Held = true
	return true
}

// enough reports whether so many rejections begin the hold, or continue it after its stated end.
func (h *Hold) enough() bool {
	repeated := h.row - h.others
	others := int64(h.Highest-h.from) - int64(repeated) //nolint:gosec // that were sent: fewer than 2^40
	return h.row >= h.needed && 2*h.others >= h.needed && 2*int64(h.others) > others && h.uncrowded
}

// Lapse applies that the stated end has passed, when claim sent was the latest one. What has waited is sent from now on.
func (h *Hold) Lapse(sent uint64) {
	h.Ending, h.from, h.row, h.others, h.needed, h.uncrowded, h.next = true, sent, 0, 0, 1, true, time.Time{}
}

// neededRow returns how many rejections in a row random ones in this share produce with the probability chance.
func neededRow(share float64) int {
	share = min(max(share, 1e-3), .95)
	return max(leastRow, int(math.Ceil(math.Log(chance)/math.Log(share))))
}

// Begin holds others, although no rejection of this quota was added: a learned rate needs it, or another
// process. A zero until means that no end is known.
func (h *Hold) Begin(sent uint64, until, now time.Time) {
	if !h.Held {
		*h = Hold{Since: now, doubt: h.doubt, right: h.right, against: h.against, share: h.before, before: h.before, Highest: sent}
	}
	h.Suspected, h.Held, h.Ending, h.Latest, h.Highest, h.first, h.sentBy, h.from = true, true, false, now, sent, sent, sent, sent
	if !now.Before(h.Until) {
		h.Until = time.Time{} // it goes on
	}
	if !until.IsZero() {
		h.Until = ticks.Later(h.Until, until)
	}
}

// Waits reports whether claims wait as of now. wait is the time until the stated end; 0: no end is stated.
func (h *Hold) Waits(now time.Time) (wait time.Duration, waits bool) {
	switch {
	case !h.Held:
		return 0, false
	case h.Until.IsZero():
		return 0, true
	}
	wait = h.Until.Sub(now)
	return max(wait, 0), wait > 0
}

// Estimated reports whether no rejection stated when the hold ends.
func (h *Hold) Estimated() bool { return h.Until.IsZero() }

// Accepted applies that claim n was accepted. It reports whether that ends the hold, and whether the hold was
// right: it lasted until its stated end, or so many tests were rejected before that this was no chance.
func (h *Hold) Accepted(n uint64, now time.Time) (ended, right bool) {
	if n > h.first && n <= h.sentBy {
		h.against = min(h.against+1, 2*single)
	}
	switch {
	case !h.Suspected || n <= h.sentBy || h.Ending && n <= h.from || h.Held && !h.Ending && n <= h.Highest:
		return false, false
	case !h.Held:
		h.Suspected = false
		return false, false
	}
	return true, h.End(now)
}

// End ends the hold, because a later request was accepted, which another process may have sent. It reports whether the
// hold was right.
func (h *Hold) End(now time.Time) (right bool) {
	lasted := !h.Until.IsZero() && !now.Before(h.Until)
	right = lasted && h.against < single || math.Pow(h.share, float64(h.Rejected)) <= rightChance
	h.Suspected, h.Held = false, false
	switch {
	case right:
		h.right, h.before = min(h.right+1, trusted), h.share
		h.doubt -= min(h.doubt, 1)
		return true
	case h.against < single && h.Until.Sub(now) < rounding && now.Sub(h.Since) >= rounding && !h.Until.IsZero():
		return h.right > 0 // it may have been over
	}
	h.right, h.before = 0, 0
	h.doubt = min(h.doubt+1, maxDoubt)
	return false
}

// Release ends the hold, because the estimate that it is based on was dropped.
func (h *Hold) Release() { h.Suspected, h.Held, h.Ending = false, false, false }

// Trusted reports whether the latest holds were right.
func (h *Hold) Trusted() bool { return h.right >= trusted }
