package quota

import (
	"math"
	"math/rand/v2"
	"time"
)

const (
	maxSenders    = 1024           // of which a replayGuard knows the sequence
	seenWindow    = 1024           // sequence numbers below the highest of a sender that are accepted once each
	maxClockError = 24 * time.Hour // between the clocks of two processes
	lagWindow     = time.Minute    // see sender.lags
	maxRecalling  = 4096           // accounts
	recallTakes   = 5 * time.Second
)

// A replayGuard numbers and dates the messages of this process, and decides which messages of
// others are new. Both numbers are authenticated together with the message.
//
//   - A message with a sequence number that was accepted before is ignored. So is one whose
//     number is more than 1,024 below the highest of its sender.
//   - A message that arrives later than those around it is as much older, whatever the Share
//     says about its age: what it announced may be over by then.
//   - A message whose time is more than a day off is ignored.
//
// There is one exception: what is kept of an account is accepted again by a process that has
// forgotten the account and asks for it with Exchange.Fetch. It is then as old as it is, so it
// holds no longer than when it was first heard.
//
// Limitation: clocks of processes need not agree, so a process that has heard nothing of a
// sender cannot tell how old the first message of it is, and relies on Update.Age.
//
// It is guarded by convoy.mu. Its memory is bounded: a sender takes 200 bytes.
type replayGuard struct {
	began     time.Time // times are counted from here, by a monotonic clock if there is one
	sequence  uint64    // of the last message of ours
	senders   map[uint64]*sender
	recalling map[string]time.Time // accounts whose Recall has not ended, and until when it may take
}

// A sender is what is known of another process.
type sender struct {
	highest uint64                  // sequence number
	seen    [seenWindow / 64]uint64 // a bit for each number up to highest, by its remainder
	heard   time.Time               // when it was heard last

	// lags are the least differences between our time and that of the sender when a message
	// was posted, in the current and in the previous lagWindow. A message with a larger
	// difference was on the way for longer than those.
	lags  [2]time.Duration
	since time.Time // begin of the current window
}

func newReplayGuard(now time.Time) replayGuard {
	return replayGuard{began: now, senders: make(map[uint64]*sender), recalling: make(map[string]time.Time)}
}

// time returns now by a clock that is not set while the process runs.
func (g *replayGuard) time(now time.Time) time.Time {
	return g.began.Round(0).Add(now.Sub(g.began))
}

// stamp gives n the next sequence number, and its time.
func (g *replayGuard) stamp(n *news, now time.Time) {
	g.sequence++
	n.Seq, n.At = g.sequence, g.time(now).UnixMicro()
}

// recall notes that kept messages of an account are expected.
func (g *replayGuard) recall(account string, now time.Time) {
	if len(g.recalling) < maxRecalling {
		g.recalling[account] = now.Add(recallTakes)
	}
}

// recalled notes that no more kept messages of an account are expected.
func (g *replayGuard) recalled(account string) { delete(g.recalling, account) }

// accept returns how old n is, which was posted told ago according to the Share. It reports
// false if n is a replay, or has no valid time.
func (g *replayGuard) accept(n *news, account string, told time.Duration, now time.Time) (age time.Duration, ok bool) {
	told = min(max(told, 0), maxDelay)
	lag := g.time(now).Sub(time.UnixMicro(n.At)) - told
	if n.Seq == 0 || n.At <= 0 || n.At > math.MaxInt64/2000 || max(lag, -lag) > maxClockError {
		return 0, false
	}
	s := g.senders[n.From]
	if s == nil {
		s = &sender{lags: [2]time.Duration{lag, lag}, since: now}
		g.room()
		g.senders[n.From] = s
	}
	if !s.first(n.Seq) && !now.Before(g.recalling[account]) {
		return 0, false
	}
	age = told + max(lag-min(s.lags[0], s.lags[1]), 0)
	s.note(lag, now)
	return age, true
}

// room makes room for one more sender: of a few, the one goes that was silent for longest.
func (g *replayGuard) room() {
	if len(g.senders) < maxSenders {
		return
	}
	var oldest uint64
	var since time.Time
	skip := rand.IntN(maxSenders / 2)
	for from, s := range g.senders {
		if skip--; skip < 0 && (since.IsZero() || s.heard.Before(since)) {
			oldest, since = from, s.heard
		}
	}
	delete(g.senders, oldest)
}

// first reports whether a sequence number is new, and notes it.
func (s *sender) first(n uint64) bool {
	if n > s.highest {
		if n-s.highest >= seenWindow {
			clear(s.seen[:])
		} else {
			for i := s.highest + 1; i < n; i++ {
				s.seen[i%seenWindow/64] &^= 1 << (i % 64)
			}
		}
		s.highest = n
		s.seen[n%seenWindow/64] |= 1 << (n % 64)
		return true
	}
	word, bit := &s.seen[n%seenWindow/64], uint64(1)<<(n%64)
	if s.highest-n >= seenWindow || *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

// note adds the lag of a message.
func (s *sender) note(lag time.Duration, now time.Time) {
	if now.Sub(s.since) > lagWindow {
		s.lags[1], s.lags[0], s.since = s.lags[0], lag, now
	}
	s.lags[0] = min(s.lags[0], lag)
	s.heard = now
}
