package throttleredis

import (
	"cmp"
	"fmt"
	"math"
	"time"

	saturated "github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// TokenBucket returns a limiter that behaves like throttle.NewTokenBucket. It panics if l
// or s is invalid.
func (s *Store) TokenBucket(l throttle.Limit) *Limiter { return s.limiter(tokenBucket(l)) }

func tokenBucket(l throttle.Limit) limit {
	t := ticksOf(l)
	b := limit{
		algorithm:     "tokenbucket",
		err:           l.Validate(),
		name:          l.Name,
		policy:        cmp.Or(l.Name, l.String()),
		shape:         []any{l.Per},
		capacity:      t.burst,
		per:           t.duration(t.window()),
		ticksPerMicro: t.scale,
		args:          floats(t.interval, t.scale, t.burst),
		newRule:       func(o EventualOptions) usageRule { return newBucketUsage(l, o.PeerTimeout) },
		newShare:      func(n int64) throttle.Limiter { return throttle.NewTokenBucket(shareOf(l, n)) },
	}
	margin := t.burst / leaseShare
	valid := t.duration(saturated.Mul(margin, t.interval))
	if valid/2 >= minLeaseTime {
		b.leaseMargin, b.leaseReserve, b.leaseTime, b.leaseUnit = margin, valid, valid/2, t.duration(t.interval)
		b.lease = func(part) time.Duration { return valid }
	}
	return b
}

// RefillBucket returns a limiter that behaves like throttle.NewRefillBucket. Without an
// Anchor, ticks count from the Unix epoch, because the processes have no creation time in
// common. InitialDeficit must be 0: unused keys expire and would begin with the deficit
// again and again. RefillBucket panics if r or s is invalid.
func (s *Store) RefillBucket(r throttle.RefillBucketConfig) *Limiter {
	return s.limiter(refillBucket(r))
}

func refillBucket(r throttle.RefillBucketConfig) limit {
	burst := cmp.Or(r.Limit.Burst, r.Limit.Count)
	per, anchor := micros(r.Limit.Per), anchorMicros(r.Anchor)
	err := r.Validate()
	if err == nil && r.InitialDeficit != 0 {
		err = fmt.Errorf("throttleredis: refill bucket %q: InitialDeficit is %d: leave it 0: keys that are not used are forgotten, so that a bucket starts full", r.Limit.Name, r.InitialDeficit)
	}
	return limit{
		algorithm: "refillbucket",
		err:       cmp.Or(err, validateMicros("refill bucket", r.Limit.Name, r.Limit.Per), validateCount("refill bucket", r.Limit.Name, max(burst, r.Limit.Count))),
		name:      r.Limit.Name,
		policy:    cmp.Or(r.Limit.Name, r.Limit.String()),
		shape:     []any{per, anchor},
		capacity:  burst,
		per:       time.Duration(saturated.Mul((burst-1)/max(r.Limit.Count, 1)+1, int64(max(r.Limit.Per, 0)))),
		args:      floats(per, r.Limit.Count, burst, anchor),
		newShare: func(n int64) throttle.Limiter {
			return throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: shareOf(r.Limit, n), Anchor: r.Anchor})
		},
	}
}

// LeakyBucket returns a limiter that behaves like throttle.NewLeakyBucket. With Queue 0 it
// is a meter, which rejects claims; otherwise it is a queue, which books ahead. LeakyBucket panics if l or s is invalid.
func (s *Store) LeakyBucket(l throttle.LeakyBucketConfig) *Limiter { return s.limiter(leakyBucket(l)) }

func leakyBucket(l throttle.LeakyBucketConfig) limit {
	t := ticksOf(l.Limit)
	queue := min(saturated.Mul(max(l.Queue, 0), t.interval), maxWindow)
	most, full, split := t.burst, t.window(), int64(0)
	if l.Split {
		most, full, split = t.burst+min(max(l.Queue, 0), math.MaxInt64-t.burst), t.window()+queue, 1
	}
	return limit{
		algorithm:     "leakybucket",
		err:           l.Validate(),
		name:          l.Limit.Name,
		policy:        cmp.Or(l.Limit.Name, l.Limit.String()),
		shape:         []any{l.Limit.Per, split},
		capacity:      most,
		per:           t.duration(full),
		ticksPerMicro: t.scale,
		scaledGrant:   true,
		queueBound:    queueBoundOf(l.Queue),
		args:          floats(t.interval, t.scale, t.burst, queue, min(most, maxUnits), split),
		newShare: func(n int64) throttle.Limiter {
			return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: shareOf(l.Limit, n), Queue: l.Queue / n, Split: l.Split})
		},
	}
}

// TickQueue returns a limiter that behaves like throttle.NewTickQueue. Without an Anchor,
// ticks count from the Unix epoch; an Anchor is rounded up to whole microseconds. TickQueue
// panics if t or s is invalid, or if there is more than one tick per microsecond.
func (s *Store) TickQueue(t throttle.TickQueueConfig) *Limiter { return s.limiter(tickQueue(t)) }

func tickQueue(t throttle.TickQueueConfig) limit {
	per := micros(t.Limit.Per)
	err := cmp.Or(t.Validate(), validateMicros("tick queue", t.Limit.Name, t.Limit.Per), validateCount("tick queue", t.Limit.Name, t.Queue))
	if err == nil && t.Limit.Count > min(per, maxScale) {
		err = fmt.Errorf("throttleredis: tick queue %q: Count is %d in %v: it must be one in a microsecond at most, and %d in all", t.Limit.Name, t.Limit.Count, t.Limit.Per, maxScale)
	}
	if err != nil {
		return limit{err: err}
	}
	anchor := anchorMicros(t.Anchor)
	g := saturated.GCD(t.Limit.Count, per)
	return limit{
		algorithm:     "tickqueue",
		name:          t.Limit.Name,
		policy:        cmp.Or(t.Limit.Name, t.Limit.String()),
		shape:         []any{t.Limit.Count / g, per / g, anchor},
		capacity:      t.Queue,
		per:           time.Duration(saturated.MulDivUp(t.Queue, int64(t.Limit.Per), t.Limit.Count)),
		ticksPerMicro: t.Limit.Count / g,
		queueBound:    queueBoundOf(t.Queue),
		args:          floats(t.Limit.Count/g, per/g, t.Queue, anchor),
		newShare: func(n int64) throttle.Limiter {
			part := throttle.TickQueueConfig{Limit: evenRateOf(t.Limit, n), Queue: max(t.Queue/n, 1), Anchor: t.Anchor}
			return throttle.NewTickQueue(part)
		},
	}
}

// maxNginxBurst is the maximum throttle.NginxConfig.Burst. The script counts thousandths of it.
const maxNginxBurst = 1e9

// Nginx returns a limiter that behaves like throttle.NewNginx. It panics if l or s is
// invalid.
func (s *Store) Nginx(l throttle.NginxConfig) *Limiter { return s.limiter(nginx(l)) }

func nginx(l throttle.NginxConfig) limit {
	err := l.Validate()
	if err == nil && l.Burst > maxNginxBurst {
		err = fmt.Errorf("throttleredis: limit_req %q: Burst is %d: it must be a billion or less", l.Name, l.Burst)
	}
	if err != nil {
		return limit{err: err}
	}
	rate := saturated.MulDivDown(saturated.Mul(l.Rate, 1000), int64(time.Second), int64(l.Per))
	undelayed := l.Delay
	if l.NoDelay {
		undelayed = l.Burst
	}
	return limit{
		algorithm:  "nginx",
		name:       l.Name,
		policy:     cmp.Or(l.Name, l.String()),
		capacity:   undelayed + 1,
		per:        time.Duration(saturated.MulDivUp((undelayed+1)*1000, int64(time.Second), rate)),
		queueBound: queueBoundOf(l.Burst - undelayed),
		args:       floats(rate, l.Burst*1000, undelayed*1000),
		newShare: func(n int64) throttle.Limiter {
			whole := throttle.Limit{Name: cmp.Or(l.Name, l.String()), Count: rate, Per: 1000 * time.Second, Burst: undelayed + 1}
			return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: shareOf(whole, n), Queue: (l.Burst - undelayed) / n})
		},
	}
}
