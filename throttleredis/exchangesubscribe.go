package throttleredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/quota/fleet"
)

const (
	pingInterval   = time.Second // idle time after which the subscription is tested
	maxUpdateBytes = 16 << 10    // maximum length of a message in bytes
)

// keepSubscribed keeps a subscription until t is closed.
func (t *exchangeBus) keepSubscribed() {
	var p retryDelay
	for t.ctx.Err() == nil {
		began := time.Now()
		err := t.runSubscription()
		t.mu.Lock()
		t.stats.Connected = false
		if t.ctx.Err() == nil {
			t.stats.Err = err
		}
		t.mu.Unlock()
		if time.Since(began) > pingInterval {
			p = 0
		}
		if !t.sleep(p.next()) {
			return
		}
	}
}

// runSubscription receives messages until an error occurs. A server that responds to a ping
// may still be the wrong one: when a server of a ring fails or recovers, the channel moves
// to another one. Therefore runSubscription tests that it receives the updates that this
// process publishes.
func (t *exchangeBus) runSubscription() (err error) {
	defer func() {
		// A Ring panics if none of its servers is up.
		if r := recover(); r != nil {
			err = fmt.Errorf("throttleredis: exchange: subscribe: %v", r)
		}
	}()
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	sub := t.client.Subscribe(ctx, t.channel())
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { sub.Close() })
	defer stop()
	for pinged := false; ; {
		m, err := sub.ReceiveTimeout(ctx, pingInterval)
		var slow net.Error
		switch {
		case err == nil:
			pinged = false
			t.receive(m)
		case pinged || !errors.As(err, &slow) || !slow.Timeout():
			return err
		default:
			t.Publish(fleet.Message{}) // an empty update, which tests whether our own messages arrive
			pinged = true
		}
	}
}

// receive processes a message of a subscription.
func (t *exchangeBus) receive(m any) {
	switch m := m.(type) {
	case *redis.Subscription:
		t.mu.Lock()
		t.stats.Connected, t.stats.Err = true, nil
		t.queue.fetchKnown() // updates published before the subscription were missed
		t.mu.Unlock()
		t.wakeDelivery()
	case *redis.Message:
		if m, ok := parseUpdate(m.Payload); ok {
			t.notify(m)
		}
	}
}

// parseUpdate parses a message that exchange_publish.lua wrote:
//
//	age in microseconds, account, quota, payload
func parseUpdate(text string) (m fleet.Message, ok bool) {
	parts := strings.SplitN(text, " ", 4)
	if len(parts) < 4 || len(text) > maxUpdateBytes {
		return m, false
	}
	age, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil || age < 0 || age > maxUnits {
		return m, false
	}
	m = fleet.Message{Account: parts[1], Quota: parts[2], Content: parts[3], Age: time.Duration(age) * time.Microsecond}
	return m, m.Content != ""
}
