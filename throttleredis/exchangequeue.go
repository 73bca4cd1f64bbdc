package throttleredis

import (
	"slices"
	"time"

	"github.com/heed-go/heed/quota"
)

const (
	maxQueuedUpdates = 256  // messages that wait to be posted
	maxAccounts      = 4096 // that are read again after a gap
	maxBatch         = 64   // messages, or accounts, of one script
	staleAfter       = time.Second
)

// An exchangeQueue is what is still to be done: messages to post, and accounts to recall.
type exchangeQueue struct {
	updates  []queuedUpdate
	fetches  []string
	accounts map[string]struct{} // that were ever asked for
}

type queuedUpdate struct {
	quota.Update
	queuedAt time.Time // of Post
}

// stale reports whether p is of no use to anybody any more.
func (p queuedUpdate) stale(now time.Time) bool {
	return now.Sub(p.queuedAt) > max(p.Keep, staleAfter)
}

// add adds m. If that is too much the oldest is dropped.
func (q *exchangeQueue) add(m quota.Update, now time.Time) (dropped uint64) {
	if len(q.updates) == maxQueuedUpdates {
		q.updates, dropped = slices.Delete(q.updates, 0, 1), 1
	}
	q.updates = append(q.updates, queuedUpdate{m, now})
	return dropped
}

// requeue puts back what could not be posted, in front of what has come since.
func (q *exchangeQueue) requeue(batch []queuedUpdate, now time.Time) (dropped uint64) {
	all := append(batch, q.updates...)
	q.updates = slices.DeleteFunc(all, func(p queuedUpdate) bool { return p.stale(now) })
	if over := len(q.updates) - maxQueuedUpdates; over > 0 {
		q.updates = slices.Delete(q.updates, 0, over)
	}
	return uint64(len(all) - len(q.updates))
}

// addFetch adds an account to be read, and remembers it for the day of a gap.
func (q *exchangeQueue) addFetch(account string) {
	if q.accounts == nil {
		q.accounts = make(map[string]struct{})
	}
	if len(q.accounts) >= maxAccounts {
		for other := range q.accounts {
			delete(q.accounts, other)
			break
		}
	}
	q.accounts[account] = struct{}{}
	if len(q.fetches) < maxAccounts {
		q.fetches = append(q.fetches, account)
	}
}

// fetchKnown has all accounts read again.
func (q *exchangeQueue) fetchKnown() {
	q.fetches = q.fetches[:0]
	for account := range q.accounts {
		q.fetches = append(q.fetches, account)
	}
}

// take returns what is to be done next.
func (q *exchangeQueue) take() (updates []queuedUpdate, fetches []string) {
	n := min(len(q.updates), maxBatch)
	updates = slices.Clone(q.updates[:n])
	q.updates = slices.Delete(q.updates, 0, n)
	n = min(len(q.fetches), maxBatch)
	fetches = slices.Clone(q.fetches[:n])
	q.fetches = slices.Delete(q.fetches, 0, n)
	return updates, fetches
}
