package headers

import (
	"crypto/sha256"
	"math"
	"net/http"
	"time"
)

// A Statement is what a rejection states about its end. The values are ordered from the
// least to the most precise.
type Statement uint8

const (
	NotStated       Statement = iota // the response is not a rejection, or only its status makes it one
	StatedRejection                  // a known body, code or header states that it is a rejection, but not until when
	StatedLimit                      // one of Report.Limits has no units left, and states when units are restored if HasReset
	StatedWait                       // Report.Wait is the time after which to retry, possibly 0
)

var statementNames = [...]string{"not stated", "rejection", "limit", "wait"}

// String returns the name of s in lower case.
func (s Statement) String() string {
	if int(s) < len(statementNames) {
		return statementNames[s]
	}
	return "unknown statement"
}

// resolve completes r after headers or body have been read: it limits every number to its
// range and derives Stated and Wait. It may be called again after more has been read.
func (r *Report) resolve(status int) {
	r.RetryAfter = boundDelay(r.RetryAfter)
	for i := range r.Limits {
		r.Limits[i].bound()
	}
	r.Stated, r.Wait = r.statement(status)
}

// statement returns what a rejection states. A 503 with Retry-After counts as a rejection.
func (r *Report) statement(status int) (Statement, time.Duration) {
	if !r.Throttled && !(status == http.StatusServiceUnavailable && r.HasRetryAfter) {
		return NotStated, 0
	}
	if r.HasRetryAfter {
		return StatedWait, r.RetryAfter
	}
	if r.anyExhausted() {
		return StatedLimit, 0
	}
	if reset, ok := r.earliestReset(); ok {
		return StatedWait, reset
	}
	if r.documentedWait > 0 {
		return StatedWait, r.documentedWait
	}
	if r.explicit {
		return StatedRejection, 0
	}
	return NotStated, 0
}

// anyExhausted reports whether a limit has no units left.
func (r *Report) anyExhausted() bool {
	for i := range r.Limits {
		if l := &r.Limits[i]; l.HasRemaining && l.Remaining == 0 {
			return true
		}
	}
	return false
}

// earliestReset returns the reset of a rejection that states only resets: no limit states
// what is left. It returns the earliest reset, because the response does not state which
// limit rejected the request. It ignores a reset of 0, which servers send with limits that
// they do not apply.
func (r *Report) earliestReset() (reset time.Duration, ok bool) {
	for i := range r.Limits {
		l := &r.Limits[i]
		if l.HasRemaining {
			return 0, false
		}
		if l.HasReset && l.ResetAfter > 0 && (!ok || l.ResetAfter < reset) {
			reset, ok = l.ResetAfter, true
		}
	}
	return reset, ok
}

// bound limits the numbers of l to their ranges: counts are never negative, delays and
// windows are in [0, MaxDelay], and rates are finite.
func (l *Limit) bound() {
	l.Name, l.Unit, l.PartitionKey = truncate(l.Name), truncate(l.Unit), boundKey(l.PartitionKey)
	l.Limit, l.Remaining, l.Used = max(l.Limit, 0), max(l.Remaining, 0), max(l.Used, 0)
	l.ResetAfter, l.Window = boundDelay(l.ResetAfter), boundDelay(l.Window)
	if !(l.Rate >= 0) || math.IsInf(l.Rate, 1) {
		l.Rate = 0
	}
}

// truncate returns the first maxNameLen bytes of a name.
func truncate(name string) string { return name[:min(len(name), maxNameLen)] }

// boundKey returns a partition key of at most maxNameLen bytes. The end of a longer key is
// replaced by a hash of the key, so that different partitions keep different keys.
func boundKey(key string) string {
	if len(key) <= maxNameLen {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:maxNameLen-len(sum)] + string(sum[:])
}

// boundDelay returns d, at least 0 and at most MaxDelay.
func boundDelay(d time.Duration) time.Duration { return min(max(d, 0), MaxDelay) }

// MaxDelay is the longest delay or window that a Report contains: 366 days. Longer values are
// reduced to it. There are quotas per month, and there may be quotas per year.
const MaxDelay = 366 * 24 * time.Hour
