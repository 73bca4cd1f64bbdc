package main

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

const (
	processes = 2
	callers   = 32 // per process; each makes a claim every 10 ms, which is more than the limit grants
	pause     = 10 * time.Millisecond
	outages   = 3
)

var limit = throttle.Limit{Count: 1000, Per: time.Second, Burst: 100}

// A decision is the result of one claim.
type decision struct {
	at           time.Time // time of the claim
	took         time.Duration
	withoutRedis bool // Degraded, or an error
	failed       bool
	granted      bool
}

// A span is the time from a failure of Redis until its recovery.
type span struct{ from, to time.Time }

// A plan configures a measurement.
type plan struct {
	fallback        bool
	leased          bool
	pool            int
	outage, between time.Duration
}

// measure runs processes that make claims while Redis fails and recovers.
func measure(t *redistest.Program, f fault, p plan) (r result) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	addr := server.Addr
	if f.viaProxy {
		addr = proxy.Addr
	}
	before := runtime.NumGoroutine()
	ctx, stop := context.WithCancel(context.Background())
	var all [processes][]decision
	var granted, opened atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for i := range all {
		client := redis.NewClient(p.options(addr))
		wg.Go(func() {
			defer client.Close()
			all[i] = work(ctx, limiter(client, p, &opened), f.deadline, &granted)
		})
	}
	var spans []span
	for range outages {
		time.Sleep(p.between)
		f.begin(server, proxy)
		from := time.Now()
		time.Sleep(p.outage)
		f.end(server, proxy)
		spans = append(spans, span{from, time.Now()})
	}
	time.Sleep(p.between)
	end := time.Now()
	stop()
	wg.Wait()
	rate := float64(limit.Count) / limit.Per.Seconds()
	r.Granted, r.Opened = granted.Load(), opened.Load()
	r.Over = (float64(r.Granted) - rate*time.Since(start).Seconds()) / float64(limit.Burst)
	r.summarize(all[:], spans, end)
	r.Leaked = leakedGoroutines(before)
	return r
}

// options returns the client options that the documentation of Fallback recommends, or
// without a Fallback the defaults of go-redis.
func (p plan) options(addr string) *redis.Options {
	if !p.fallback {
		return &redis.Options{Addr: addr}
	}
	return &redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1, PoolSize: p.pool}
}

func limiter(client *redis.Client, p plan, opened *atomic.Int64) throttle.Limiter {
	store := &throttleredis.Store{Client: client}
	if p.leased {
		store.Mode = throttleredis.Leased
	}
	l := store.TokenBucket(limit)
	if !p.fallback {
		return l
	}
	trace := &throttleredis.BreakerTrace{Opened: func(error) { opened.Add(1) }}
	return &throttleredis.Fallback{Limiter: l, Processes: processes, Breaker: &throttleredis.Breaker{Trace: trace}}
}

// work runs the callers of a process, which make claims until ctx is done. deadline is the
// time from each claim until its deadline. Zero means none.
func work(ctx context.Context, l throttle.Limiter, deadline time.Duration, granted *atomic.Int64) []decision {
	var all [callers][]decision
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			for tick := time.NewTicker(pause); ctx.Err() == nil; <-tick.C {
				at := time.Now()
				d, err := reserve(l, deadline)
				all[i] = append(all[i], decision{at, time.Since(at), d.Degraded || err != nil, err != nil, d.OK})
				if d.OK {
					granted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return slices.Concat(all[:]...)
}

func reserve(l throttle.Limiter, deadline time.Duration) (throttle.Decision, error) {
	ctx := context.Background()
	if deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, deadline)
		defer cancel()
	}
	return l.Reserve(ctx, throttle.Claim{})
}

// summarize computes the figures for the decisions made while Redis was unreachable and
// until it decided again.
func (r *result) summarize(processes [][]decision, spans []span, end time.Time) {
	var took []time.Duration
	withoutRedis, later, granted, length := 0, 0, 0, time.Duration(0)
	for i, s := range spans {
		length += s.to.Sub(s.from)
		until := end
		if i+1 < len(spans) {
			until = spans[i+1].from
		}
		for _, all := range processes {
			recovered := recoveredAt(all, s.to, until)
			r.Recovery = max(r.Recovery, milliseconds(recovered.Sub(s.to)))
			for _, d := range all {
				if ended := d.ended(); d.granted && ended.After(s.from) && ended.Before(s.to) {
					granted++
				}
				switch {
				case d.at.After(recovered) && d.at.Before(until):
					later++
					if d.withoutRedis {
						withoutRedis++
					}
				case d.ended().After(s.from) && !d.at.After(recovered):
					took = append(took, d.took)
					if d.failed {
						r.Errors++
					}
				}
			}
		}
	}
	slices.Sort(took)
	r.Decisions = len(took)
	r.P50, r.P99, r.Max = milliseconds(took[len(took)/2]), milliseconds(took[len(took)*99/100]), milliseconds(took[len(took)-1])
	r.Rate = 100 * float64(granted) / (float64(limit.Count) * length.Seconds() / limit.Per.Seconds())
	r.WithoutRedis = 100 * float64(withoutRedis) / float64(max(later, 1))
}

// recoveredAt returns the time of the first decision by Redis after t.
func recoveredAt(all []decision, t, until time.Time) time.Time {
	first := until
	for _, d := range all {
		if end := d.ended(); !d.withoutRedis && d.at.After(t) && end.Before(first) {
			first = end
		}
	}
	return first
}

func (d decision) ended() time.Time { return d.at.Add(d.took) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// leakedGoroutines returns by how many the number of goroutines exceeds before, after
// waiting a limited time for goroutines to end.
func leakedGoroutines(before int) (n int) {
	for range 100 {
		if n = runtime.NumGoroutine() - before; n <= 0 {
			return 0
		}
		time.Sleep(50 * time.Millisecond)
	}
	return n
}
