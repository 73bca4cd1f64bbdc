package quota

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A message that arrives again has no effect, whenever and however often that happens.
func TestSharing_replayedMessagesHaveNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		ask(t, one, users, quotaOf(users, "1000", "7", "30"))
		settle(b)
		reject(t, one, users, "Retry-After", "60")
		settle(b)
		require.False(t, claim(t, other, users).OK)
		recorded := append([]message(nil), b.published...)
		require.NotEmpty(t, recorded)
		time.Sleep(61 * time.Second)
		ask(t, one, users, quotaOf(users, "1000", "999", "60"))
		settle(b)
		before := claim(t, other, users)
		require.True(t, before.OK)
		for range 20 {
			rand.Shuffle(len(recorded), func(i, j int) { recorded[i], recorded[j] = recorded[j], recorded[i] })
			for _, m := range recorded {
				b.deliver(m)
			}
			d := claim(t, other, users)
			require.True(t, d.OK)
			require.Equal(t, before.Remaining, d.Remaining)
		}
	})
}

// A message that was held back is as old as it is, though the bus states that it is new.
func TestSharing_delayedMessagesAreAsOldAsTheyAre(t *testing.T) {
	for name, skew := range map[string]time.Duration{"clocks agree": 0, "an hour apart": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bus{delay: time.Millisecond}
				all := trackers(b, 2, skew)
				for _, tr := range all {
					tr.Demand(request(t, users))
				}
				settle(b)
				ask(t, all[0], users, quotaOf(users, "1000", "900", "3600"))
				settle(b)
				b.copies = func(message) int { return 0 }
				reject(t, all[0], users, "Retry-After", "60")
				held := b.published[len(b.published)-1]
				time.Sleep(40 * time.Second)
				b.deliver(held)
				require.InDelta(t, 20*time.Second, heldFor(t, all[1], users), float64(2*time.Second))
				time.Sleep(21 * time.Second)
				require.True(t, claim(t, all[1], users).OK)
			})
		})
	}
}

// A process that has forgotten an account fetches again what is known of it.
func TestSharing_fetchesAgainWhatItHasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		other.maxAccounts = 1
		reject(t, one, users, "Retry-After", "600")
		settle(b)
		require.False(t, claim(t, other, users).OK)
		id := other.endpointOf(request(t, users)).id
		for i := range 500 {
			other.Demand(request(t, fmt.Sprintf("https://host%d.test/", i)))
		}
		settle(b)
		other.sharing.mu.Lock()
		known := other.sharing.endpoints[id]
		other.sharing.mu.Unlock()
		require.Nil(t, known)
		other.Demand(request(t, users))
		settle(b)
		require.False(t, claim(t, other, users).OK)
	})
}

// An endingBus is a bus whose subscriptions end.
type endingBus struct {
	silentBus
	mu      sync.Mutex
	receive func(message)
	ended   chan struct{}
	count   int
}

func (l *endingBus) Publish(message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
}

func (l *endingBus) Subscribe(ctx context.Context, receive func(message)) {
	l.receive, l.ended = receive, make(chan struct{})
	context.AfterFunc(ctx, func() { close(l.ended) })
}

func TestTracker_closeEndsSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		new(Tracker).Close()
		b, l := &bus{delay: time.Millisecond}, &endingBus{}
		one, other := two(t, b)
		subscriber := &Tracker{Exchange: newExchange(l, secret, nil)}
		subscriber.Demand(request(t, users))
		time.Sleep(fetchTime)
		require.NotZero(t, l.count)
		for range 2 {
			subscriber.Close()
			other.Close()
		}
		<-l.ended
		count := l.count
		reject(t, one, users, "Retry-After", "60")
		settle(b)
		l.receive(b.published[len(b.published)-1])
		require.True(t, claim(t, other, users).OK, "updates of other processes have no effect any more")
		ep := other.endpointOf(request(t, users))
		other.sharing.receive(Update{Kind: UpdateHold, Sender: 1, Account: ep.id, Route: ep.route(request(t, users)), Wait: time.Hour})
		require.True(t, claim(t, other, users).OK, "neither have those of an Exchange that does not end subscriptions")
		reject(t, subscriber, users, "Retry-After", "60")
		subscriber.Demand(request(t, "https://new.test/"))
		require.Equal(t, count, l.count)
		require.False(t, claim(t, subscriber, users).OK, "it goes on without sharing")
	})
}
