package main

import (
	"context"
	"time"

	"github.com/heed-go/heed/throttle"
)

// simulate makes a claim for each arrival. It returns when the admitted requests start, and
// the longest wait among them.
func simulate(l throttle.Limiter, arrivals []time.Duration) (acts []time.Duration, longest time.Duration) {
	ctx := context.Background()
	server := throttle.WithClock(throttle.NewTokenBucket(limit), newClock())
	var open []pendingRequest
	for _, at := range arrivals {
		for len(open) > 0 && open[0].endsAt <= at {
			open[0].end(l)
			open = open[1:]
		}
		c := throttle.Claim{Key: "client", Now: start.Add(at)}
		d, err := throttle.ReserveAhead(ctx, l, c, maxWait)
		if err != nil {
			panic(err) // limiters in memory do not fail
		}
		if !d.OK {
			continue
		}
		acts, longest = append(acts, at+d.Wait), max(longest, d.Wait)
		response, _ := server.Reserve(ctx, throttle.Claim{Now: start.Add(at + d.Wait)})
		open = append(open, pendingRequest{c, d, response.OK, at + d.Wait + requestDuration})
	}
	return acts, longest
}

// A pendingRequest is a request without a response yet.
type pendingRequest struct {
	claim    throttle.Claim
	decision throttle.Decision
	accepted bool
	endsAt   time.Duration
}

func (w pendingRequest) end(l throttle.Limiter) {
	f := throttle.Feedback{Now: start.Add(w.endsAt)}
	if !w.accepted {
		f.Outcome = throttle.Throttled
	}
	l.Report(context.Background(), w.claim, w.decision, f)
}

// maxInWindow returns the number of elements of acts, which are in order, in the fullest
// window.
func maxInWindow(acts []time.Duration, window time.Duration) (most int) {
	from := 0
	for i, at := range acts {
		for acts[from] <= at-window {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}
