package bench

import (
	"context"
	"time"

	xrate "golang.org/x/time/rate"

	"github.com/heed-go/heed/rate"
)

// ratePairs compares rate.Limiter with the Limiter of x/time/rate whose API it has.
func ratePairs() []Pair {
	const plenty = 1e9 // per second: more than any of the calls
	hour := time.Hour
	heedSpent, theirSpent := rate.NewLimiter(rate.Every(1000*hour), 1), xrate.NewLimiter(xrate.Every(1000*hour), 1)
	heedSpent.Allow()
	theirSpent.Allow()
	ctx := context.Background()
	pair := func(work, call string, granted bool, heed, theirs func() bool) Pair {
		return Pair{Work: work, Call: "rate.Limiter " + call, Peer: "x/time/rate " + call, Granted: granted, Heed: calls(heed), Theirs: calls(theirs)}
	}
	heed, theirs := rate.NewLimiter(plenty, plenty), xrate.NewLimiter(plenty, plenty)
	return []Pair{
		pair("rate, granted", "Allow", true, heed.Allow, theirs.Allow),
		pair("rate, rejected", "Allow", false, heedSpent.Allow, theirSpent.Allow),
		pair("rate, reserved and canceled", "Reserve, Cancel", true,
			func() bool {
				r := heed.Reserve()
				r.Cancel()
				return r.OK()
			},
			func() bool {
				r := theirs.Reserve()
				r.Cancel()
				return r.OK()
			}),
		pair("rate, granted without a wait", "Wait", true,
			func() bool { return heed.Wait(ctx) == nil },
			func() bool { return theirs.Wait(ctx) == nil }),
	}
}

// calls returns the Side that calls f.
func calls(f func() bool) Side {
	return func(n int) (granted int) {
		for range n {
			if f() {
				granted++
			}
		}
		return granted
	}
}
