package throttleredis

import (
	"context"
	"math"
	"sync"
	"time"

	saturated "github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A scripted is one limit, or several limits on which a script decides together.
type scripted struct {
	store          *Store
	limits         []*Limiter
	groups         *groups
	callPool       sync.Pool
	subGrants      throttle.SubGrants // if wraps
	wraps          bool               // grants do not fit into a Decision
	holds          bool               // a limit holds units until claims end
	countsRejected bool               // a limit counts rejected claims
}

// init sets the fields of s. It does not copy limits.
func (s *scripted) init(store *Store, wraps bool, limits ...*Limiter) {
	s.store, s.wraps, s.limits = store, wraps, limits
	algorithms := make([]string, len(limits))
	for i, l := range limits {
		algorithms[i] = l.limit.algorithm
		s.holds = s.holds || l.limit.holdsUntilEnd
		s.countsRejected = s.countsRejected || l.limit.countsRejections
	}
	s.groups = &groups{store: store, script: scriptOf(algorithms...)}
	s.callPool.New = func() any { return newCall(limits...) }
}

// callFor returns a call for a key. release must be called afterwards.
func (s *scripted) callFor(key string) *call {
	k := s.callPool.Get().(*call)
	k.key = key
	return k
}

// release allows another use of k.
func (s *scripted) release(k *call) {
	if !k.abandoned {
		k.ctx, k.roundTrip, k.reply = nil, nil, ""
		s.callPool.Put(k)
	}
}

// ask decides on c, of n units, in Redis.
func (s *scripted) ask(ctx context.Context, c throttle.Claim, n int64) (throttle.Decision, error) {
	k, first := s.callFor(c.Key), &s.limits[0].limit
	defer s.release(k)
	maxWait := waitArg(c, first.ticksPerMicro)
	r, at, err := s.decide(ctx, k, c.Now, 8+len(s.limits)*partSize, func() { k.setOp(opOf(c), n, maxWait) })
	if err != nil {
		return first.afterError(ctx, c, at, err)
	}
	d := s.decision(k.decisions, c, r, at)
	if s.wraps && d.OK && !c.DryRun {
		d = s.subGrants.Wrap(d, k.decisions)
	}
	return d, nil
}

// decide runs the script for a claim made at a time, whose arguments prepare sets, and returns size
// bytes. If a calendar did not have the server's window, it tries a second time.
func (s *scripted) decide(ctx context.Context, k *call, claimed time.Time, size int, prepare func()) (reply, time.Time, error) {
	for range 2 {
		prepare()
		now := claimed
		if now.IsZero() && (len(k.calendars) > 0 || s.store.useLocalClock) {
			now = s.store.now()
		}
		k.setBounds(now)
		r, err := s.store.runTimed(ctx, "reserve", s.groups, k, now, size)
		if err == nil && k.missedWindow(r, now) {
			continue
		}
		if claimed.IsZero() && !s.store.useLocalClock {
			now = s.store.now()
		}
		return r, now, err
	}
	return "", claimed, errClockJumps
}

// decision combines the decisions of the limits. If all grant, it returns the one with the
// fewest units left; otherwise the rejection with the longest wait. It stores in parts what
// a settlement needs of each grant.
func (s *scripted) decision(parts []throttle.Decision, c throttle.Claim, r reply, at time.Time) (all throttle.Decision) {
	for i, l := range s.limits {
		p := r.part(i)
		d := l.limit.decision(p, c, r.now(), at)
		parts[2*i], parts[2*i+1] = d, throttle.Decision{Grant: uint64(p.now())}
		switch {
		case l.limit.isBan():
			if !d.OK {
				all = l.limit.withBan(all, d.Wait)
			}
		case i == 0, all.OK && !d.OK, !all.OK && !d.OK && waitsLonger(d, all):
			all = d
		case all.OK && d.OK && d.Limit > 0 && (all.Limit == 0 || d.Remaining < all.Remaining):
			d.At = all.At
			all = d
		}
	}
	return all
}

// waitsLonger reports whether the rejection d has a longer wait than the rejection e. A
// known wait counts as longer than an unknown one.
func waitsLonger(d, e throttle.Decision) bool {
	switch {
	case d.Wait == 0 || e.Wait == throttle.Forever:
		return false
	case d.Wait == throttle.Forever || e.Wait == 0:
		return true
	}
	return d.At.Add(d.Wait).After(e.At.Add(e.Wait))
}

// settle settles the claim c, which d granted, at each of the limits, even if ctx is done.
func (s *scripted) settle(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if !s.wraps {
		s.send(ctx, c, f, f.ExtraCost(c, d), []throttle.Decision{d})
		return
	}
	s.subGrants.Unwrap(d, throttle.Ended, func(parts []throttle.Decision) {
		if extra := f.ExtraCost(c, d); extra != 0 || s.holds {
			s.send(ctx, c, f, extra, parts)
		}
	})
}

// send runs the script to settle c, whose cost differs by extra units. It ignores the result.
func (s *scripted) send(ctx context.Context, c throttle.Claim, f throttle.Feedback, extra int64, parts []throttle.Decision) {
	k, op := s.callFor(c.Key), opSettle
	defer s.release(k)
	if f.State == throttle.Unused {
		op = opCancel
	}
	n, _ := c.Units()
	k.setOp(op, n, clampUnits(extra))
	for i, l := range s.limits {
		k.appendGrant(&l.limit, parts[2*i:])
	}
	now := f.Now
	if now.IsZero() && s.store.useLocalClock {
		now = s.store.now()
	}
	_, _ = s.store.runTimed(context.WithoutCancel(ctx), "settle", s.groups, k, now, 0)
}

// appendGrant appends the four numbers that a settlement passes to the script of l. The first is the
// grant: the reading at which the claim was granted, or another number that the algorithm chose. The
// second is the number of ticks after which the claim acts, or its number if l holds units until the
// end. The others are more about a grant that does not fit into Decision.Grant. Such a grant, and those
// of several limits, are two parts: the Decision of the limit, and one whose Grant is the server's reading.
func (k *call) appendGrant(l *limit, parts []throttle.Decision) {
	d := parts[0]
	first, second := int64(d.Grant&(1<<readingBits-1)), int64(d.Grant>>readingBits)
	switch {
	case l.wideGrant:
		k.claim.append(float64(parts[1].Grant), float64(d.Wait), float64(d.ResetAfter-l.idleTime), math.Float64frombits(d.Grant))
		return
	case l.scaledGrant:
		second = saturated.MulDivDown(int64(max(d.Wait, 0)), l.ticksPerMicro, 1000) - second
	case !l.holdsUntilEnd:
		first, second = int64(d.Grant), 0
	}
	k.claim.append(float64(first), float64(second), 0, 0)
}
