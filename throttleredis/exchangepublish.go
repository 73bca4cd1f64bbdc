package throttleredis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/quota/fleet"
)

var publishScript, fetchScript = redis.NewScript(readLua("exchange_publish")), redis.NewScript(readLua("exchange_fetch"))

// deliver processes the queue until t is closed. After a failure it waits, so that an
// unreachable Redis costs little.
func (t *exchangeBus) deliver() {
	var p retryDelay
	for {
		select {
		case <-t.work:
		case <-t.ctx.Done():
			return
		}
		for {
			t.mu.Lock()
			updates, fetches := t.queue.take()
			t.mu.Unlock()
			if len(updates)+len(fetches) == 0 {
				break
			}
			if err := t.process(updates, fetches); err == nil {
				p = 0
			} else if !sleep(t.ctx, p.next(time.Second)) {
				return
			}
		}
	}
}

// process fetches accounts and publishes updates. Updates that cannot be published are put
// back into the queue.
func (t *exchangeBus) process(updates []queuedUpdate, fetches []string) error {
	err := t.fetchAll(fetches)
	if err == nil {
		err = t.publishAll(updates)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.stats.Err = err
		t.stats.Dropped += t.queue.requeue(updates, time.Now())
		return err
	}
	if t.stats.Connected {
		t.stats.Err = nil
	}
	for _, p := range updates {
		if p.Content != "" {
			t.stats.Published++
		}
	}
	return nil
}

// runScript runs a script within the timeout.
func (t *exchangeBus) runScript(s *redis.Script, keys []string, args []any) (any, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
	defer cancel()
	return runScript(ctx, t.client, s, keys, args)
}

// publishAll publishes updates with one script.
func (t *exchangeBus) publishAll(updates []queuedUpdate) error {
	if len(updates) == 0 {
		return nil
	}
	now := time.Now()
	keys, args := make([]string, 0, len(updates)), []any{t.channel()}
	for _, p := range updates {
		keys = append(keys, t.key(p.Account))
		args = append(args, p.Account, p.Quota, p.Keep.Microseconds(), max(now.Sub(p.queuedAt)+p.Age, 0).Microseconds(), p.Content)
	}
	if _, err := t.runScript(publishScript, keys, args); err != nil {
		return fmt.Errorf("throttleredis: exchange: publish: %w", err)
	}
	return nil
}

// fetchAll passes the stored updates of accounts to the subscribers. It also reports that a
// fetch has ended if it failed, so that no subscriber waits for it.
func (t *exchangeBus) fetchAll(accounts []string) error {
	if len(accounts) == 0 {
		return nil
	}
	keys := make([]string, len(accounts))
	for i, a := range accounts {
		keys[i] = t.key(a)
	}
	reply, err := t.runScript(fetchScript, keys, nil)
	found, _ := reply.([]any)
	for i, account := range accounts {
		var all []fleet.Message
		if i < len(found) {
			all = parseStored(account, found[i])
		}
		t.notify(append(all, fleet.Message{Account: account})...)
	}
	if err != nil {
		return fmt.Errorf("throttleredis: exchange: fetch: %w", err)
	}
	return nil
}

// parseStored parses the result of exchange_fetch.lua for an account: quota, age and payload
// of each update.
func parseStored(account string, found any) (all []fleet.Message) {
	parts, _ := found.([]any)
	for ; len(parts) >= 3; parts = parts[3:] {
		quota, _ := parts[0].(string)
		age, _ := parts[1].(int64)
		content, _ := parts[2].(string)
		if content != "" && age >= 0 && age <= maxUnits {
			all = append(all, fleet.Message{Account: account, Quota: quota, Content: content, Age: time.Duration(age) * time.Microsecond})
		}
	}
	return all
}
