package worlds

import (
	"math"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// The names of further clients, with which the invariants are checked.
const (
	HeedFew         = "heed-few-accounts" // the zero heed.Transport whose Tracker keeps few accounts
	HeedBucket      = "heed-bucket"       // with an own token bucket
	HeedInFlight    = "heed-in-flight"    // with an own limit on requests in flight
	HeedBucketOff   = "heed-bucket-off"   // HeedBucket with quota.Disabled
	HeedInFlightOff = "heed-in-flight-off"
)

// fewAccounts is the MaxAccounts of HeedFew.
const fewAccounts = 3

// A variant is a client that is a heed.Transport.
type variant struct {
	mode        quota.Mode
	maxAccounts int
	bucket      bool // an own token bucket, at about the limit of the world
	inFlight    bool // an own limit on requests in flight
}

var variants = map[string]variant{
	Heed: {}, HeedFull: {mode: quota.Full}, HeedOff: {mode: quota.Disabled}, HeedFew: {maxAccounts: fewAccounts},
	HeedBucket: {bucket: true}, HeedBucketOff: {bucket: true, mode: quota.Disabled},
	HeedInFlight: {inFlight: true}, HeedInFlightOff: {inFlight: true, mode: quota.Disabled},
}

// WithoutTracker returns the client that has the same own limit as a client, and no tracker. Invariants that compare a client
// with an own limit compare it with this one. It is empty if the client has no own limit.
func WithoutTracker(client string) string {
	return map[string]string{HeedBucket: HeedBucketOff, HeedInFlight: HeedInFlightOff}[client]
}

// hasOwnLimit reports whether a client has an own limit.
func hasOwnLimit(client string) bool { return variants[client].bucket || variants[client].inFlight }

// transport returns the Transport of v. Its tracker and own limit are watched by s.
func (v variant) transport(s *Server) *heed.Transport {
	t := &heed.Transport{Base: s, Trace: s.waits.trace(), Quota: &quota.Tracker{Mode: v.mode, MaxAccounts: v.maxAccounts}}
	switch {
	case v.bucket:
		t.Limiter = throttle.NewTokenBucket(s.w.ownRate())
	case v.inFlight:
		t.Limiter = throttle.NewConcurrency(throttle.ConcurrencyConfig{Name: ownName, Count: s.w.ownInFlight()})
		s.memory.own = t.Limiter
	}
	s.memory.tracker, s.memory.maxAccounts = t.Quota, v.maxAccounts
	return t
}

const (
	ownName   = "own"
	leastRate = 2   // requests per second of an own bucket without a limit of the server: with fewer, I3 could not be judged
	ownSpare  = 1.2 // of an own limit, by the mean demand
)

// ownRate returns the rate of an own token bucket: what the limit of w allows, or a little more than the mean demand if
// there is none.
func (w *World) ownRate() throttle.Limit {
	rate := max(ownSpare*w.Load.Rate(), leastRate)
	if l := w.Limit; l != nil && l.Window > 0 {
		sharers := map[Scope]int{PerHost: 1, PerTenant: w.Load.Tenants, PerRoute: w.Load.Routes}[l.Scope]
		rate = float64(l.Count*sharers) / l.Window.Seconds()
	}
	return throttle.Limit{Name: ownName, Count: max(int64(rate*3600), 1), Per: time.Hour, Burst: max(int64(math.Ceil(rate)), 1)}
}

// ownInFlight returns the number of requests that an own limit allows in flight: that of the limit of w, or a little more than
// the mean demand if there is none.
func (w *World) ownInFlight() int64 {
	if l := w.Limit; l != nil && l.Kind == InFlight {
		return int64(max(l.Count, 1))
	}
	return max(int64(math.Ceil(ownSpare*w.Load.Rate()*w.Latency.Median.Seconds())), leastRate)
}
