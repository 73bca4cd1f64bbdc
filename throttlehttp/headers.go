package throttlehttp

import (
	"net/http"
	"strconv"
	"time"

	"github.com/heed-go/heed/throttle"
)

// In the form that net/http keeps them in; on the wire case does not matter.
const (
	limitHeader      = "X-Ratelimit-Limit"
	remainingHeader  = "X-Ratelimit-Remaining"
	resetHeader      = "X-Ratelimit-Reset"
	retryAfterHeader = "Retry-After"
)

// writeState says how the limit of d stands, unless it does not count or a
// middleware further out speaks of one that has less left.
func writeState(h http.Header, d throttle.Decision) {
	if d.Limit == 0 || saysLess(h, d) {
		return
	}
	h[limitHeader] = []string{strconv.FormatInt(d.Limit, 10)}
	h[remainingHeader] = []string{strconv.FormatInt(d.Remaining, 10)}
	h[resetHeader] = []string{strconv.FormatInt(seconds(d.ResetAfter), 10)}
}

// saysLess reports whether h speaks already of a limit that leaves less than a
// granted d. A refusal always goes first.
func saysLess(h http.Header, d throttle.Decision) bool {
	v := h[remainingHeader]
	if len(v) == 0 || !d.OK {
		return false
	}
	left, err := strconv.ParseInt(v[0], 10, 64)
	return err == nil && left <= d.Remaining
}

// writeRetryAfter says to come back after wait, if that is known to help.
func writeRetryAfter(h http.Header, wait time.Duration) {
	if wait > 0 && wait != throttle.Forever {
		h[retryAfterHeader] = []string{strconv.FormatInt(seconds(wait), 10)}
	}
}

// whenAgain is the end of the sentence that a refused client reads.
func whenAgain(wait time.Duration) string {
	switch s := seconds(wait); {
	case wait == 0:
		return " Try again later."
	case wait == throttle.Forever:
		return " This one cannot be taken at any time."
	case s == 1:
		return " Try again in 1 second."
	default:
		return " Try again in " + strconv.FormatInt(s, 10) + " seconds."
	}
}

// seconds rounds d up: who is told less than the truth comes too early.
func seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
