package fleet

import (
	"math/rand/v2"
	"time"

	"github.com/heed-go/heed/quota/headers"
)

const (
	maxSenders    = 1024           // whose sequence a guard knows
	seenWindow    = 1024           // sequence numbers below the highest of a sender that are accepted once each
	maxClockError = 24 * time.Hour // between the clocks of two processes
	lagWindow     = time.Minute    // see sender.lags
	maxFetching   = 4096           // accounts
	fetchTime     = 5 * time.Second
)

// A guard decides which messages are new, and how old they are. Its rules are those of Exchange. Its
// memory is bounded: a sender takes 200 bytes. The zero guard is ready to use.
type guard struct {
	senders  map[uint64]*sender
	fetching map[string]time.Time // accounts whose Fetch has not ended, and until when it may take
}

// A sender is what is known of another Tracker.
type sender struct {
	highest uint64                  // sequence number
	seen    [seenWindow / 64]uint64 // a bit for each number up to highest, by its remainder
	latest  time.Time               // when its latest message arrived

	// lags are the least differences between our time and that of the sender when a message
	// was published, in the current and in the previous lagWindow. A message with a larger
	// difference was in transit for longer than those.
	lags  [2]time.Duration
	since time.Time // begin of the current window
}

// accept returns the age of a message, which was published busAge ago according to the bus, and
// whether its number is new. It reports false if its time is too different from now.
func (g *guard) accept(from uint64, st stamp, busAge time.Duration, now time.Time) (age time.Duration, isNew, ok bool) {
	busAge = min(max(busAge, 0), headers.MaxDelay)
	lag := now.Sub(time.UnixMicro(st.At))
	if lag.Abs() > headers.MaxDelay+maxClockError { // it may be the largest Duration
		return 0, false, false
	}
	if lag -= busAge; lag.Abs() > maxClockError {
		return 0, false, false
	}
	s := g.senders[from]
	if s == nil {
		s = g.add(from)
		s.lags, s.since = [2]time.Duration{lag, lag}, now
	}
	isNew = s.first(st.Sequence)
	age = busAge + max(lag-min(s.lags[0], s.lags[1]), 0)
	if isNew {
		s.note(lag, now)
	}
	return age, isNew, true
}

// add adds a sender. If there are too many, it removes one of those that were silent for longest.
func (g *guard) add(from uint64) *sender {
	if g.senders == nil {
		g.senders = make(map[uint64]*sender)
	}
	if len(g.senders) >= maxSenders {
		var oldest uint64
		var since time.Time
		skip := rand.IntN(maxSenders / 2)
		for from, s := range g.senders {
			if skip--; skip < 0 && (since.IsZero() || s.latest.Before(since)) {
				oldest, since = from, s.latest
			}
		}
		delete(g.senders, oldest)
	}
	s := new(sender)
	g.senders[from] = s
	return s
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
	s.latest = now
}

// fetch notes that kept messages of an account are expected.
func (g *guard) fetch(account string, now time.Time) {
	if g.fetching == nil {
		g.fetching = make(map[string]time.Time)
	}
	if len(g.fetching) >= maxFetching {
		for a, until := range g.fetching {
			if !now.Before(until) {
				delete(g.fetching, a)
			}
		}
	}
	if len(g.fetching) < maxFetching {
		g.fetching[account] = now.Add(fetchTime)
	}
}

// fetched notes that no more kept messages of an account are expected.
func (g *guard) fetched(account string) { delete(g.fetching, account) }

// isFetching reports whether kept messages of an account are expected.
func (g *guard) isFetching(account string, now time.Time) bool {
	return now.Before(g.fetching[account])
}
