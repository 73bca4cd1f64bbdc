package bench

import (
	"context"
	"time"

	"github.com/heed-go/heed/throttle"
	"golang.org/x/time/rate"
)

const (
	tokenBucketCall = "throttle.NewTokenBucket Reserve, through Limiter"
	rateCall        = "x/time/rate Allow"
)

// tokenBucketPairs compares one shared bucket. Ours is called as the Transport calls it:
// through the interface, with a reading of its own clock, and with a complete Decision as
// the result. The peer returns only a boolean.
func tokenBucketPairs() []Pair {
	plenty := throttle.Limit{Count: 1e9, Per: time.Second} // an interval shorter than any call
	spent := throttle.Limit{Count: 1, Per: 1000 * time.Hour}
	return []Pair{
		{
			Work: "one bucket, granted", Call: tokenBucketCall, Peer: rateCall, Granted: true,
			Heed:   reserve(throttle.NewTokenBucket(plenty)),
			Theirs: allow(rate.NewLimiter(1e9, 1e9)),
		},
		{
			Work: "one bucket, rejected", Call: tokenBucketCall, Peer: rateCall,
			Heed:   reserve(drained(throttle.NewTokenBucket(spent))),
			Theirs: allow(drainedRate(rate.NewLimiter(rate.Every(spent.Per), 1))),
		},
	}
}

func reserve(l throttle.Limiter) Side {
	ctx := context.Background()
	return func(n int) (granted int) {
		for range n {
			if d, err := l.Reserve(ctx, throttle.Claim{}); err == nil && d.OK {
				granted++
			}
		}
		return granted
	}
}

func allow(l *rate.Limiter) Side {
	return func(n int) (granted int) {
		for range n {
			if l.Allow() {
				granted++
			}
		}
		return granted
	}
}

// drained takes the only unit of l.
func drained(l throttle.Limiter) throttle.Limiter {
	reserve(l)(1)
	return l
}

func drainedRate(l *rate.Limiter) *rate.Limiter {
	l.Allow()
	return l
}
