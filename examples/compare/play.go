package main

import (
	"context"
	"time"

	"github.com/heed-go/heed/throttle"
)

// play asks l for each arrival. It returns when those that it granted act, and the
// longest wait among them.
func play(l throttle.Limiter, arrivals []time.Duration) (acts []time.Duration, longest time.Duration) {
	ctx := context.Background()
	server := throttle.NewTokenBucket(limit, newClock())
	var open []work
	for _, at := range arrivals {
		for len(open) > 0 && open[0].ends <= at {
			open[0].end(l)
			open = open[1:]
		}
		c := throttle.Claim{Key: "client", Now: start.Add(at), MaxWait: patience}
		d, err := l.Reserve(ctx, c)
		if err != nil {
			panic(err) // no limiter here has a store that can fail
		}
		if !d.OK {
			continue
		}
		acts, longest = append(acts, at+d.Wait), max(longest, d.Wait)
		answer, _ := server.Reserve(ctx, throttle.Claim{Now: start.Add(at + d.Wait)})
		open = append(open, work{c, d, answer.OK, at + d.Wait + takes})
	}
	return acts, longest
}

// work is a request that has not been answered yet.
type work struct {
	claim    throttle.Claim
	decision throttle.Decision
	accepted bool
	ends     time.Duration
}

func (w work) end(l throttle.Limiter) {
	f := throttle.Feedback{Now: start.Add(w.ends)}
	if !w.accepted {
		f.Outcome = throttle.Throttled
	}
	throttle.Observe(context.Background(), l, w.claim, w.decision, f)
}

// fullest returns how many of acts, which are in order, fall into the fullest window.
func fullest(acts []time.Duration, window time.Duration) (most int) {
	from := 0
	for i, at := range acts {
		for acts[from] <= at-window {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}
