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

// Whatever a process has posted, and whenever and however often it arrives again: it has no
// effect on those that heard it.
func TestShare_replayedMessagesHaveNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		ask(t, one, users, quotaOf(users, "1000", "7", "30"))
		settle(b)
		refuse(t, one, users, "Retry-After", "60")
		settle(b)
		require.False(t, claim(t, other, users).OK)
		recorded := append([]Update(nil), b.posted...)
		require.NotEmpty(t, recorded)
		time.Sleep(61 * time.Second)
		ask(t, one, users, quotaOf(users, "1000", "999", "60"))
		settle(b)
		before := claim(t, other, users)
		require.True(t, before.OK)
		for range 20 {
			rand.Shuffle(len(recorded), func(i, j int) { recorded[i], recorded[j] = recorded[j], recorded[i] })
			for _, m := range recorded {
				other.convoy.hear(m)
			}
			d := claim(t, other, users)
			require.True(t, d.OK)
			require.Equal(t, before.Remaining, d.Remaining)
		}
	})
}

// A message that was held back is as old as it is, though the Share says that it is new.
func TestShare_delayedMessagesAreAsOldAsTheyAre(t *testing.T) {
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
				b.copies = func(Update) int { return 0 }
				refuse(t, all[0], users, "Retry-After", "60")
				held := b.posted[len(b.posted)-1]
				time.Sleep(40 * time.Second)
				all[1].convoy.hear(held)
				require.InDelta(t, 20*time.Second, claim(t, all[1], users).Wait, float64(2*time.Second))
				time.Sleep(21 * time.Second)
				require.True(t, claim(t, all[1], users).OK)
			})
		})
	}
}

// A process that has forgotten an account learns again what is kept of it.
func TestShare_recallsWhatItHeardBeforeItForgot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		other.MaxAccounts = 1 // per shard
		refuse(t, one, users, "Retry-After", "600")
		settle(b)
		require.False(t, claim(t, other, users).OK)
		id := other.siteOf(request(t, users)).id
		for i := range 500 {
			other.Demand(request(t, fmt.Sprintf("https://host%d.test/", i)))
		}
		settle(b)
		other.convoy.mu.Lock()
		known := other.convoy.sites[id]
		other.convoy.mu.Unlock()
		require.Nil(t, known)
		other.Demand(request(t, users))
		settle(b)
		require.False(t, claim(t, other, users).OK)
		synctest.Wait()
		require.Empty(t, other.convoy.guard.recalling)
	})
}

func TestReplayGuard_acceptsEachNumberOnce(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	g := newReplayGuard(now)
	accept := func(from, seq uint64) bool {
		_, ok := g.accept(&news{From: from, Seq: seq, At: now.UnixMicro()}, "a", 0, now)
		return ok
	}
	r, seen, highest := random(1), map[uint64]bool{}, uint64(0)
	for range 20_000 {
		seq := max(highest, 1) + r.Uint64N(3)
		switch r.IntN(10) {
		case 0:
			seq += r.Uint64N(2000)
		case 1, 2, 3, 4:
			seq -= min(r.Uint64N(1500), seq-1)
		}
		want := !seen[seq] && seq+seenWindow > highest
		require.Equal(t, want, accept(1, seq), "%d, after %d", seq, highest)
		seen[seq], highest = true, max(highest, seq)
	}
	require.True(t, accept(2, 1), "of another process")
	require.False(t, accept(3, 0))
	for from := range uint64(3 * maxSenders) {
		accept(from, 1)
		require.LessOrEqual(t, len(g.senders), maxSenders)
	}
}

func TestReplayGuard_ignoresTimesThatAreADayOff(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for off, want := range map[time.Duration]bool{
		0: true, 23 * time.Hour: true, -23 * time.Hour: true, 25 * time.Hour: false, -25 * time.Hour: false,
	} {
		g := newReplayGuard(now)
		age, ok := g.accept(&news{From: 1, Seq: 1, At: now.Add(off).UnixMicro()}, "a", time.Minute, now)
		require.Equal(t, want, ok, off)
		if ok {
			require.Equal(t, time.Minute, age, "a process heard for the first time is believed")
		}
	}
}

// If the clock of a sender falls behind, its messages seem old, for no longer than 2 minutes.
func TestReplayGuard_getsUsedToAnotherClockError(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	g := newReplayGuard(now)
	age := func(seq uint64, off time.Duration) time.Duration {
		age, ok := g.accept(&news{From: 1, Seq: seq, At: now.Add(off).UnixMicro()}, "a", 0, now)
		require.True(t, ok)
		return age
	}
	require.Zero(t, age(1, 0))
	now = now.Add(time.Second)
	require.Equal(t, time.Hour, age(2, -time.Hour))
	for seq := range uint64(3) {
		now = now.Add(61 * time.Second)
		age(3+seq, -time.Hour)
	}
	require.Zero(t, age(6, -time.Hour))
}

// A line is a Share whose subscriptions end.
type line struct {
	deaf
	mu    sync.Mutex
	hear  func(Update)
	ended chan struct{}
	posts int
}

func (l *line) Publish(Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.posts++
}

func (l *line) Subscribe(ctx context.Context, hear func(Update)) {
	l.hear, l.ended = hear, make(chan struct{})
	context.AfterFunc(ctx, func() { close(l.ended) })
}

func TestTracker_closeEndsSharing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		new(Tracker).Close()
		b, l := &bus{delay: time.Millisecond}, &line{}
		one, other := two(t, b)
		subscriber := &Tracker{Exchange: l, Secret: other.Secret}
		subscriber.Demand(request(t, users))
		time.Sleep(recallFor)
		require.NotZero(t, l.posts)
		for range 2 {
			subscriber.Close()
			other.Close()
		}
		<-l.ended
		posts := l.posts
		refuse(t, one, users, "Retry-After", "60")
		settle(b)
		l.hear(b.posted[len(b.posted)-1])
		require.True(t, claim(t, other, users).OK, "what others post has no effect any more")
		refuse(t, subscriber, users, "Retry-After", "60")
		subscriber.Demand(request(t, "https://new.test/"))
		require.Equal(t, posts, l.posts)
		require.False(t, claim(t, subscriber, users).OK, "it goes on, on its own")
	})
}
