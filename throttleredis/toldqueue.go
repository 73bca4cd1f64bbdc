package throttleredis

import (
	"slices"
	"time"

	"github.com/heed-go/heed/quota"
)

const (
	maxPosts    = 256  // messages that wait to be posted
	maxAccounts = 4096 // that are read again after a gap
	maxBatch    = 64   // messages, or accounts, of one script
	staleAfter  = time.Second
)

// A queue is what is still to be done: messages to post, and accounts to recall.
type queue struct {
	posts    []post
	recalls  []string
	accounts map[string]struct{} // that were ever asked for
}

type post struct {
	quota.Message
	at time.Time // of Post
}

// stale reports whether p is of no use to anybody any more.
func (p post) stale(now time.Time) bool {
	return now.Sub(p.at) > max(p.Keep, staleAfter)
}

// post adds m. If that is too much the oldest is dropped.
func (q *queue) post(m quota.Message, now time.Time) (dropped uint64) {
	if len(q.posts) == maxPosts {
		q.posts, dropped = slices.Delete(q.posts, 0, 1), 1
	}
	q.posts = append(q.posts, post{m, now})
	return dropped
}

// again puts back what could not be posted, in front of what has come since.
func (q *queue) again(batch []post, now time.Time) (dropped uint64) {
	all := append(batch, q.posts...)
	q.posts = slices.DeleteFunc(all, func(p post) bool { return p.stale(now) })
	if over := len(q.posts) - maxPosts; over > 0 {
		q.posts = slices.Delete(q.posts, 0, over)
	}
	return uint64(len(all) - len(q.posts))
}

// recall adds an account to be read, and remembers it for the day of a gap.
func (q *queue) recall(account string) {
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
	if len(q.recalls) < maxAccounts {
		q.recalls = append(q.recalls, account)
	}
}

// recallAll has all accounts read again.
func (q *queue) recallAll() {
	q.recalls = q.recalls[:0]
	for account := range q.accounts {
		q.recalls = append(q.recalls, account)
	}
}

// take returns what is to be done next.
func (q *queue) take() (posts []post, recalls []string) {
	n := min(len(q.posts), maxBatch)
	posts = slices.Clone(q.posts[:n])
	q.posts = slices.Delete(q.posts, 0, n)
	n = min(len(q.recalls), maxBatch)
	recalls = slices.Clone(q.recalls[:n])
	q.recalls = slices.Delete(q.recalls, 0, n)
	return posts, recalls
}
