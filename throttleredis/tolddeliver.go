package throttleredis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/quota"
)

var toldPost, toldRecall = redis.NewScript(read("told_post")), redis.NewScript(read("told_recall"))

// deliver works on the queue until t is closed. After a failure it pauses, so that a
// Redis that is away costs nothing.
func (t *Told) deliver() {
	var p pauses
	for {
		select {
		case <-t.work:
		case <-t.ctx.Done():
			return
		}
		for {
			t.mu.Lock()
			posts, recalls := t.queue.take()
			t.mu.Unlock()
			if len(posts)+len(recalls) == 0 {
				break
			}
			if err := t.do(posts, recalls); err == nil {
				p = 0
			} else if !t.rest(p.next()) {
				return
			}
		}
	}
}

// do posts and recalls. What cannot be posted is put back.
func (t *Told) do(posts []post, recalls []string) error {
	err := t.recallAll(recalls)
	if err == nil {
		err = t.postAll(posts)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.stats.Err = err
		t.stats.Dropped += t.queue.again(posts, time.Now())
		return err
	}
	if t.stats.Connected {
		t.stats.Err = nil
	}
	for _, p := range posts {
		if p.News != "" {
			t.stats.Posted++
		}
	}
	return nil
}

// run runs a script within the time limit.
func (t *Told) run(s *redis.Script, keys []string, args []any) (any, error) {
	timeout := t.Timeout
	if timeout == 0 {
		timeout = toldTimeout
	}
	ctx, cancel := context.WithTimeout(t.ctx, timeout)
	defer cancel()
	return s.Run(ctx, t.Client, keys, args...).Result()
}

// postAll posts all in one script.
func (t *Told) postAll(posts []post) error {
	if len(posts) == 0 {
		return nil
	}
	now := time.Now()
	keys, args := make([]string, 0, len(posts)), []any{t.channel()}
	for _, p := range posts {
		keys = append(keys, t.key(p.Account))
		args = append(args, p.Account, p.Bucket, p.Keep.Microseconds(), max(now.Sub(p.at)+p.Age, 0).Microseconds(), p.News)
	}
	if _, err := t.run(toldPost, keys, args); err != nil {
		return fmt.Errorf("throttleredis: told: post: %w", err)
	}
	return nil
}

// recallAll hands what is kept of accounts to those who listen. They learn that this
// was all also if it failed: nobody is to wait for it.
func (t *Told) recallAll(accounts []string) error {
	if len(accounts) == 0 {
		return nil
	}
	keys := make([]string, len(accounts))
	for i, a := range accounts {
		keys[i] = t.key(a)
	}
	reply, err := t.run(toldRecall, keys, nil)
	found, _ := reply.([]any)
	for i, account := range accounts {
		var all []quota.Message
		if i < len(found) {
			all = kept(account, found[i])
		}
		t.hear(append(all, quota.Message{Account: account})...)
	}
	if err != nil {
		return fmt.Errorf("throttleredis: told: recall: %w", err)
	}
	return nil
}

// kept reads what told_recall.lua found of an account: bucket, age and news, in turn.
func kept(account string, found any) (all []quota.Message) {
	parts, _ := found.([]any)
	for ; len(parts) >= 3; parts = parts[3:] {
		bucket, _ := parts[0].(string)
		age, _ := parts[1].(int64)
		news, _ := parts[2].(string)
		if news != "" && age >= 0 && age <= maxUnits {
			all = append(all, quota.Message{Account: account, Bucket: bucket, News: news, Age: time.Duration(age) * time.Microsecond})
		}
	}
	return all
}
