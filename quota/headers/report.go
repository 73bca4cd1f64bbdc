package headers

import (
	"encoding/base64"
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Report is what one response states about limits. The zero Report states nothing.
//
// All delays and windows are at least 0 and at most 366 days (MaxDelay): an instant in the
// past is 0, and longer times are reduced to MaxDelay.
type Report struct {
	// Limits holds one element per limit that the response states. Nil means none.
	Limits []Limit

	// RetryAfter is the delay, from receipt, that Retry-After and related headers or a body
	// state. It is reported for every status, but it must be obeyed only if the response is
	// Throttled or a 503: see Wait.
	RetryAfter time.Duration

	// HasRetryAfter reports that RetryAfter is stated, possibly as 0. Negative and
	// malformed values count as not stated, and so does a 0 of a rejection beside a limit
	// that has nothing left until a later reset: some servers round down.
	HasRetryAfter bool

	// RetryFormat is the format in which RetryAfter was stated.
	RetryFormat TimeFormat

	// Stated is how much the rejection states about its end. It is NotStated if the
	// response is neither Throttled nor a 503 with Retry-After.
	Stated Statement

	// Wait is the time, from receipt, after which the limit admits requests again, if
	// Stated is StatedWait: RetryAfter if it is stated; else the earliest reset of a
	// rejection that does not state what is left; else what the API documents for such a
	// rejection (60 s for GitHub's secondary limit, Provider.RejectionWait). Zero then means
	// that the request may be repeated immediately.
	Wait time.Duration

	// MinDelay is the least delay before the request is sent again if Stated is NotStated: 1 s
	// after a rejection that one of Provider.ErrorCodes, or a code of AWS in X-Amzn-ErrorType,
	// states. Zero means none.
	MinDelay time.Duration

	// SuggestedDelay is the delay that X-Amz-Retry-After states. A client waits at least its own
	// delay, and at most 5 s longer. Zero means that none is stated.
	SuggestedDelay time.Duration

	// Permanent means that the body states a reason that waiting does not resolve: the
	// account has no money left, has spent what it may, or is suspended. Throttled is then
	// false for any status.
	Permanent bool

	// NotProcessed means that the body states that the server is overloaded and did not process
	// the request, so that any request may be sent again.
	NotProcessed bool

	// Violated holds the names of the limits that were exceeded according to a problem body
	// (RFC 9457, member violated-policies). Nil means none.
	Violated []string

	// Throttled means that the response is a rejection because of a limit.
	Throttled bool

	// Global means that the rejection applies to all quotas of the account, not only to
	// those named.
	Global bool

	// Stale means that the response is from a cache: Age is above 0, or Cache-Status, X-Cache or a
	// similar header states a hit. Its limits are outdated and omitted.
	Stale bool

	documentedWait time.Duration // wait that the API documents for this rejection; 0: none
	provider       *Provider     // properties of the host; nil: none
}

// A Limit is the state of one limit of a server, as stated by one response.
type Limit struct {
	// Name is the server's name of the bucket. Empty means that it is not stated.
	Name string

	// Unit is what is counted, in lower case with underscores. Empty means requests. "unknown"
	// means a quota, usage or plan that may be one of storage: the names of its headers mention
	// neither rate limits nor requests, and it has no time.
	Unit string

	// PartitionKey is the pk parameter of the IETF fields, which identifies the part of the
	// server's users that the limit applies to. Limits with the same name and different
	// keys are different limits. It holds the decoded bytes; of a key of more than 96 bytes it
	// holds the first 64 and a hash. Empty means none.
	PartitionKey string

	// Limit is the maximum number of units in a window, if HasLimit is set.
	Limit int64

	// Remaining is the number of units left, if HasRemaining is set.
	Remaining int64

	// Used is the number of units used, if HasUsed is set.
	Used int64

	// HasLimit reports that Limit is stated.
	HasLimit bool

	// HasRemaining reports that Remaining is stated, or follows from Limit and Used.
	HasRemaining bool

	// HasUsed reports that Used is stated.
	HasUsed bool

	// HasReset reports that ResetAfter is stated, possibly as 0.
	HasReset bool

	// ResetAfter is the time from receipt until units are restored, if HasReset is set. It is
	// never negative.
	ResetAfter time.Duration

	// ResetFormat is the format in which ResetAfter was stated.
	ResetFormat TimeFormat

	// Window is the length of the window. Zero means that it is not stated.
	Window time.Duration

	// Rate is the number of units restored per second. Zero means that it is not stated.
	Rate float64

	partitioned bool // PartitionKey was stated with the state, and therefore with every response
}

// RemoteLimit returns l as a throttle.RemoteLimit. There a reset of 0 means that no reset
// is stated, so a reset of 0 becomes 1 ns. If a Rate is stated, Per is the time in which it
// restores all units. The name ends with the partition key.
func (l Limit) RemoteLimit() throttle.RemoteLimit {
	w := throttle.RemoteLimit{
		Name:             l.fullName(),
		Unit:             l.Unit,
		Limit:            l.Limit,
		Remaining:        l.Remaining,
		RemainingUnknown: !l.HasRemaining,
		ResetAfter:       l.ResetAfter,
		Resolution:       l.resolution(),
		Per:              l.Window,
	}
	switch {
	case l.HasReset && w.ResetAfter == 0:
		w.ResetAfter = 1
	case !l.HasReset && l.HasRemaining && l.Remaining == 0 && l.Rate > 0:
		w.ResetAfter = unitInterval(l.Rate) // of one unit
	}
	switch {
	case l.Rate <= 0:
	case w.Limit > 0:
		w.Per = fillTime(w.Limit, l.Rate)
	case w.Per == 0:
		w.Limit, w.Per = 1, unitInterval(l.Rate)
	}
	return w
}

// resolution returns by how much units may be restored before l.ResetAfter, because the
// reset was stated in whole seconds.
func (l Limit) resolution() time.Duration {
	switch {
	case l.ResetFormat == FormatEpochSeconds || l.ResetFormat == FormatDate:
		return 2 * time.Second // its own fraction of a second, and that of the Date
	case l.ResetFormat == FormatDeltaSeconds && l.ResetAfter%time.Second == 0:
		return time.Second
	}
	return 0
}

// fullName returns the name of the limit, followed by its partition if its state has one.
func (l Limit) fullName() string {
	if !l.partitioned {
		return l.Name
	}
	return l.Name + ";pk=" + base64.StdEncoding.EncodeToString([]byte(l.PartitionKey))
}

// unitInterval returns the time in which one unit is restored at rate units per second, at
// most MaxDelay.
func unitInterval(rate float64) time.Duration { return fillTime(1, rate) }

// fillTime returns the time in which n units are restored at rate units per second, at most
// MaxDelay.
func fillTime(n int64, rate float64) time.Duration {
	return time.Duration(min(math.Ceil(float64(n)*float64(time.Second)/rate), float64(MaxDelay)))
}

// AppendRemoteLimits appends the limits of r to dst as values of throttle.RemoteLimit.
func (r Report) AppendRemoteLimits(dst []throttle.RemoteLimit) []throttle.RemoteLimit {
	for _, l := range r.Limits {
		dst = append(dst, l.RemoteLimit())
	}
	return dst
}

// ResetsInMilliseconds corrects a report of a response with this status, of an API whose resets count milliseconds
// although no header says so: it divides the resets that were read as seconds by 1000, and derives Stated and Wait
// again.
func (r *Report) ResetsInMilliseconds(status int) {
	for i := range r.Limits {
		if l := &r.Limits[i]; l.ResetFormat == FormatDeltaSeconds {
			l.ResetAfter, l.ResetFormat = l.ResetAfter/1000, FormatDeltaMillis
		}
	}
	r.resolve(status)
}

// A TimeFormat is the format of a time in a header.
type TimeFormat uint8

const (
	FormatNone         TimeFormat = iota // not stated
	FormatDeltaSeconds                   // a number of seconds, possibly with a fraction
	FormatDeltaMillis                    // a number of milliseconds
	FormatDuration                       // a number with a unit, such as 1m6.779s, or with the unit of Rule.Scale
	FormatEpochSeconds                   // seconds since 1970, possibly with a fraction
	FormatEpochMillis                    // milliseconds since 1970
	FormatDate                           // a date and time as text, in any of the usual formats
	FormatEpochMicros                    // microseconds since 1970
)

var formatNames = [...]string{"not stated", "delta seconds", "delta milliseconds", "duration", "epoch seconds", "epoch milliseconds", "date", "epoch microseconds"}

// String returns the name of f.
func (f TimeFormat) String() string {
	if int(f) < len(formatNames) {
		return formatNames[f]
	}
	return "unknown format"
}

// IsDelta reports whether f is relative to the response, so that it does not depend on a
// clock.
func (f TimeFormat) IsDelta() bool {
	return f == FormatDeltaSeconds || f == FormatDeltaMillis || f == FormatDuration
}
