package replay

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A rateWait is a scenario of callers that wait for golang.org/x/time/rate, with deadlines
// and cancels. The events are replayed in order of time.
type rateWait struct {
	Limit   decimal
	Burst   int64
	Waiters []rateWaiter
	Final   int64   `json:"final_t_ns"`
	Tokens  float64 `json:"final_tokens"`
}

type rateWaiter struct {
	Start    int64  `json:"start_ns"`
	Deadline *int64 `json:"deadline_ns"`
	Cancel   *int64 `json:"cancel_ns"`
	N        int64
	Result   string
	End      int64 `json:"end_ns"`
}

func replayRateWait(line []byte, t *result) error {
	var s rateWait
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	l := newPeerLimiter(s.Limit, s.Burst)
	waiting := map[int]reservation{}
	for _, e := range events(s.Waiters) {
		w := s.Waiters[e.waiter]
		if e.cancel {
			if b, ok := waiting[e.waiter]; ok && b.actAt > e.at {
				l.cancel(e.at, b)
				w.compare(t, "canceled", e.at)
				delete(waiting, e.waiter)
			}
			continue
		}
		t.op()
		result, b := w.start(l)
		if result == "ok" && w.Cancel != nil && *w.Cancel < b.actAt {
			waiting[e.waiter] = b
			continue
		}
		w.compare(t, result, b.actAt)
	}
	if !l.limit.infinite() && l.burst > 0 {
		near(t, "final tokens", s.Tokens, l.tokens(s.Final), l.tolerance())
	}
	return nil
}

// An event is the start or the cancel of a waiter.
type event struct {
	at     int64
	waiter int
	cancel bool
}

// events returns the events in order of time; events of the same instant are in the order
// of the trace.
func events(ws []rateWaiter) []event {
	var es []event
	for i, w := range ws {
		es = append(es, event{at: w.Start, waiter: i})
		if w.Cancel != nil && *w.Cancel > w.Start {
			es = append(es, event{*w.Cancel, i, true})
		}
	}
	slices.SortStableFunc(es, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return es
}

// start makes a claim as WaitN does: it first checks whether the claim can ever be granted,
// then whether the context is done, and then reserves before the deadline.
func (w rateWaiter) start(l *peerLimiter) (result string, b reservation) {
	b.actAt = w.Start
	maxWait := throttle.Forever
	if w.Deadline != nil {
		maxWait = time.Duration(*w.Deadline - w.Start)
	}
	switch {
	case w.N > l.burst && !l.limit.infinite():
		return "exceeds_burst", b
	case w.Cancel != nil && *w.Cancel <= w.Start:
		return "canceled", b
	case maxWait <= 0:
		return "deadline", b
	}
	if b = l.reserve(w.Start, w.N, min(maxWait, math.MaxInt64)); !b.ok {
		b.actAt = w.Start
		return "exceeds_deadline", b
	}
	return "ok", b
}

func (w rateWaiter) compare(t *result, result string, at int64) {
	expect(t, "result", w.Result, result)
	near(t, "end", float64(w.End), float64(at), 2)
}
