package heedtest

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// bans knows who must not come before when.
//
//	refusal sent   grace                     until
//	─────+───────────+─────────────────────────+──▶ time
//	     |  on their |  early: refused again,  | welcome
//	     |  way then |  and Penalty is added   |
type bans struct {
	mu  sync.Mutex
	who map[string]ban
}

type ban struct{ from, until time.Time }

// check returns by how much key comes too early, and how long it has to wait
// now; 0, 0 if it does not.
func (b *bans) check(key string, now time.Time, penalty time.Duration) (early, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	is := b.who[key]
	if !now.After(is.from) || !now.Before(is.until) {
		return 0, 0
	}
	early = is.until.Sub(now)
	is.until = is.until.Add(penalty)
	b.who[key] = is
	return early, is.until.Sub(now)
}

// told notes that key was answered with status and h.
func (b *bans) told(key string, status int, h http.Header, now time.Time, skew, grace time.Duration) {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return
	}
	wait := retryAfter(h.Get("Retry-After"), now.Add(skew))
	if wait <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	is := b.who[key]
	if now.After(is.until) || is.from.IsZero() {
		is.from = now.Add(grace)
	}
	if until := now.Add(wait); until.After(is.until) {
		is.until = until
	}
	if b.who == nil {
		b.who = map[string]ban{}
	}
	b.who[key] = is
}

// retryAfter returns the delay that v says to a client whose clock is right.
func retryAfter(v string, now time.Time) time.Duration {
	if s, err := strconv.ParseInt(v, 10, 32); err == nil {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return at.Sub(now)
	}
	return 0
}

// refuseEarly answers someone who came too early and has to wait for left now.
func refuseEarly(w http.ResponseWriter, left time.Duration) {
	s := int64((left + time.Second - 1) / time.Second)
	w.Header().Set("Retry-After", strconv.FormatInt(s, 10))
	http.Error(w, "Too early: it was said when to come back.", http.StatusTooManyRequests)
}
