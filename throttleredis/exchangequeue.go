package throttleredis

import (
	"slices"
	"time"

	"github.com/heed-go/heed/quota/fleet"
)

const (
	maxQueuedUpdates = 256  // updates that are not published yet
	maxAccounts      = 4096 // accounts whose updates are fetched again after a reconnect
	maxBatch         = 64   // updates, or accounts, per script
	staleAfter       = time.Second
)

// An exchangeQueue holds the work that is not done yet: updates to publish and accounts to
// fetch.
type exchangeQueue struct {
	updates  []queuedUpdate
	fetches  []string
	accounts map[string]struct{} // accounts that Fetch was called for
}

type queuedUpdate struct {
	fleet.Message
	queuedAt time.Time // time of Publish
}

// stale reports whether p has been queued for so long that no process can use it.
func (p queuedUpdate) stale(now time.Time) bool {
	return now.Sub(p.queuedAt) > max(p.Keep, staleAfter)
}

// add appends m. If the queue is full it drops the oldest update.
func (q *exchangeQueue) add(m fleet.Message, now time.Time) (dropped uint64) {
	if len(q.updates) == maxQueuedUpdates {
		q.updates, dropped = slices.Delete(q.updates, 0, 1), 1
	}
	q.updates = append(q.updates, queuedUpdate{m, now})
	return dropped
}

// requeue puts back a batch that could not be published, before the updates that were added
// since.
func (q *exchangeQueue) requeue(batch []queuedUpdate, now time.Time) (dropped uint64) {
	all := append(batch, q.updates...)
	q.updates = slices.DeleteFunc(all, func(p queuedUpdate) bool { return p.stale(now) })
	if over := len(q.updates) - maxQueuedUpdates; over > 0 {
		q.updates = slices.Delete(q.updates, 0, over)
	}
	return uint64(len(all) - len(q.updates))
}

// addFetch queues a fetch of an account, and stores the account for fetches after a
// reconnect.
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

// fetchKnown queues a fetch of all stored accounts.
func (q *exchangeQueue) fetchKnown() {
	q.fetches = q.fetches[:0]
	for account := range q.accounts {
		q.fetches = append(q.fetches, account)
	}
}

// take removes and returns the next batch.
func (q *exchangeQueue) take() (updates []queuedUpdate, fetches []string) {
	n := min(len(q.updates), maxBatch)
	updates = slices.Clone(q.updates[:n])
	q.updates = slices.Delete(q.updates, 0, n)
	n = min(len(q.fetches), maxBatch)
	fetches = slices.Clone(q.fetches[:n])
	q.fetches = slices.Delete(q.fetches, 0, n)
	return updates, fetches
}
