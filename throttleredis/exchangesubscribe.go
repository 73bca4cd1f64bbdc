package throttleredis

import (
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/quota/fleet"
)

// maxUpdateBytes is the maximum length of a message in bytes.
const maxUpdateBytes = 16 << 10

// keepSubscribed keeps a subscription until t is closed.
func (t *exchangeBus) keepSubscribed() {
	s := subscription{
		client: t.client, channel: t.channel(), maxPause: time.Second, pingInterval: time.Second,
		ping:      func() { t.Publish(fleet.Message{}) }, // an empty update, which tests whether our own messages arrive
		connected: t.fetchMissed,
		lost:      t.disconnected,
		receive: func(payload string) {
			if m, ok := parseUpdate(payload); ok {
				t.notify(m)
			}
		},
	}
	s.run(t.ctx)
}

// fetchMissed fetches the updates that were published before the subscription.
func (t *exchangeBus) fetchMissed() {
	t.mu.Lock()
	t.stats.Connected, t.stats.Err = true, nil
	t.queue.fetchKnown()
	t.mu.Unlock()
	t.wakeDelivery()
}

// disconnected records that no updates arrive, because of err.
func (t *exchangeBus) disconnected(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Connected = false
	if err != nil {
		t.stats.Err = err
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
