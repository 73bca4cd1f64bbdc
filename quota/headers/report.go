package headers

import (
	"encoding/base64"
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Report is what one response says about limits. The zero Report says nothing.
//
// All delays and windows in it are at least 0 and at most 366 days: an instant that is past
// is 0, and what is longer than a year is a year.
type Report struct {
	Limits []Limit // one per quota that the response names; nil means none

	// RetryAfter is the delay, from receipt, that Retry-After and related headers or a body
	// state. It is reported on every status, but it is a command only on a response that is
	// Throttled, or a 503: see Wait.
	RetryAfter    time.Duration
	HasRetryAfter bool       // RetryAfter is stated, possibly as 0; negative and malformed values are not stated
	RetryFormat   TimeFormat // how RetryAfter was written

	// Stated tells a refusal that says something about its end from a bare one.
	// It is NotStated if the response is neither Throttled nor a 503 with Retry-After.
	Stated Statement

	// Wait is how long the refused quota is closed, from receipt, if Stated is StatedWait: the
	// RetryAfter; else the earliest reset of a refusal that says nothing of what is left; else
	// what the API documents for a refusal of this kind (60 s for GitHub's secondary limit).
	// Zero then means that the request may be repeated immediately.
	Wait time.Duration

	// Permanent says that the body names a reason which waiting does not cure: the account has
	// no money left, or is suspended. Throttled is false then, whatever the status.
	Permanent bool

	// Violated names the limits that a problem body (RFC 9457, member violated-policies) says
	// were exceeded; nil means none.
	Violated []string

	Throttled bool // the response is a refusal because of a limit
	Global    bool // the refusal holds for all quotas of the account, not only for those named
	Stale     bool // the response is out of a cache (Age > 0): its limits are old and left out

	documentedWait time.Duration // wait that the API documents for this refusal; 0: none
	explicit       bool          // a known body, code or header says that it is a refusal
	provider       *Provider     // what is known about the host; nil: nothing
}

// A Limit is the state of one limit of a server, as one answer tells it.
type Limit struct {
	Name string // of the bucket, as the server calls it; "": not said
	Unit string // what is counted, in lower case with underscores; "": requests

	// PartitionKey is the pk of the IETF fields: which part of the server's users the limit is
	// applied to. Limits of one name with different keys are different limits. "" means none.
	PartitionKey string

	Limit     int64 // most units that can be had in a window
	Remaining int64 // units left
	Used      int64 // units spent

	HasLimit     bool // Limit was said
	HasRemaining bool // Remaining was said, or follows from Limit and Used
	HasUsed      bool // Used was said
	HasReset     bool // ResetAfter was said, possibly as 0

	ResetAfter  time.Duration // from receipt until units come back; never negative
	ResetFormat TimeFormat    // how ResetAfter came
	Window      time.Duration // length of the window; 0: not said
	Rate        float64       // units that come back each second, where the server says so; 0: not said

	partitioned bool // PartitionKey came with the state, and so with every response
}

// RemoteLimit returns l in the words of package throttle. There a reset of 0 means that none is
// stated, so one that is now is 1 ns from now. The name has the partition key behind it.
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
	if w.Per == 0 && w.Limit == 0 && l.Rate > 0 {
		w.Limit, w.Per = 1, unitInterval(l.Rate)
	}
	return w
}

// resolution returns how much earlier than l.ResetAfter its units may come back, because the
// reset was stated in whole seconds.
func (l Limit) resolution() time.Duration {
	switch {
	case l.ResetFormat == FormatEpochSeconds || l.ResetFormat == FormatDate:
		return 2 * time.Second // its own fraction, and that of the Date
	case l.ResetFormat == FormatDeltaSeconds && l.ResetAfter%time.Second == 0:
		return time.Second
	}
	return 0
}

// fullName returns the name of the limit and, where its state has one, its partition.
func (l Limit) fullName() string {
	if !l.partitioned {
		return l.Name
	}
	return l.Name + ";pk=" + base64.StdEncoding.EncodeToString([]byte(l.PartitionKey))
}

// unitInterval returns the time that one unit takes at rate units per second, at most MaxDelay.
func unitInterval(rate float64) time.Duration {
	return time.Duration(min(math.Ceil(float64(time.Second)/rate), float64(MaxDelay)))
}

// AppendRemoteLimits appends the limits of r to dst, in the words of package throttle.
func (r Report) AppendRemoteLimits(dst []throttle.RemoteLimit) []throttle.RemoteLimit {
	for _, l := range r.Limits {
		dst = append(dst, l.RemoteLimit())
	}
	return dst
}

// A TimeFormat is how a time was written in a header.
type TimeFormat uint8

const (
	FormatNone         TimeFormat = iota // not said
	FormatDeltaSeconds                   // a number of seconds, also with a fraction
	FormatDeltaMillis                    // a number of milliseconds
	FormatDuration                       // a number with a unit, such as 1m6.779s
	FormatEpochSeconds                   // seconds since 1970, also with a fraction
	FormatEpochMillis                    // milliseconds since 1970
	FormatDate                           // a date and time as text, in any of the usual orders
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

// IsDelta reports whether f counts from the answer, so that nobody's clock matters.
func (f TimeFormat) IsDelta() bool {
	return f == FormatDeltaSeconds || f == FormatDeltaMillis || f == FormatDuration
}
