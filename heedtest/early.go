package heedtest

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// An earlyGuard detects requests that arrive before Retry-After has elapsed.
//
//	rejection sent  grace                    until
//	─────+────────────+────────────────────────+──▶ time
//	     |  not early |  early: rejected, and  | not early
//	     |            |  Penalty is added      |
type earlyGuard struct {
	mu    sync.Mutex
	holds map[string]hold
}

type hold struct{ from, until time.Time }

// check returns by how much a request of key is too early, and how long it must wait now,
// including the penalty. It returns 0, 0 if the request is not early.
func (b *earlyGuard) check(key string, now time.Time, penalty time.Duration) (early, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	current := b.holds[key]
	if !now.After(current.from) || !now.Before(current.until) {
		return 0, 0
	}
	early = current.until.Sub(now)
	current.until = current.until.Add(penalty)
	b.holds[key] = current
	return early, current.until.Sub(now)
}

// record records a response to key with status and header h.
func (b *earlyGuard) record(key string, status int, h http.Header, now time.Time, skew, grace time.Duration) {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return
	}
	wait := retryAfter(h.Get("Retry-After"), now.Add(skew))
	if wait <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	current := b.holds[key]
	if !now.Before(current.until) {
		current.from = now.Add(grace)
	}
	if until := now.Add(wait); until.After(current.until) {
		current.until = until
	}
	if b.holds == nil {
		b.holds = map[string]hold{}
	}
	b.holds[key] = current
}

// retryAfter returns the delay that v, a Retry-After header, means to a client whose clock
// shows now.
func retryAfter(v string, now time.Time) time.Duration {
	if s, err := strconv.ParseInt(v, 10, 32); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return at.Sub(now)
	}
	return 0
}

// rejectEarly rejects an early request, which has to wait for left.
func rejectEarly(w http.ResponseWriter, left time.Duration) {
	s := int64((left + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(s, 10))
	http.Error(w, "too early: Retry-After has not elapsed", http.StatusTooManyRequests)
}
