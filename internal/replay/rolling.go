package replay

import (
	"context"
	"encoding/json"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A rolling is a scenario of rolling-rate-limiter: a log of actions with a minimum gap, in
// which rejected actions count.
//
// After each action the other library returns the time until the next one is allowed. Here
// a dry run returns that time. A dry run of the other library returns the time until the
// action after the next one; to compare it, the next action is taken on a limiter with the
// same log.
type rolling struct {
	Interval int64 `json:"interval_ms"`
	Max      int64
	MinGap   int64 `json:"min_difference_ms"`
	Ops      []rollingOp
}

type rollingOp struct {
	Op, ID    string
	T         int64 `json:"t_us"`
	Blocked   bool
	Next      int64 `json:"ms_until_allowed"`
	Remaining int64
}

func replayRolling(line []byte, t *result) error {
	var s rolling
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	taken := map[string][]int64{} // since the last clear
	logs := map[string]throttle.Limiter{}
	for _, op := range s.Ops {
		t.op()
		if logs[op.ID] == nil {
			logs[op.ID] = s.log(t, nil)
		}
		switch op.Op {
		case "clear":
			delete(logs, op.ID)
			delete(taken, op.ID)
		case "limit":
			op.compare(t, logs[op.ID])
			taken[op.ID] = append(taken[op.ID], op.T)
		case "would":
			expect(t, "blocked by a dry run", op.Blocked, !dryRun(logs[op.ID], op.T).OK)
			op.compare(t, s.log(t, taken[op.ID]))
		}
	}
	return nil
}

// log returns a limiter with actions at ts.
func (s *rolling) log(t *result, ts []int64) throttle.Limiter {
	l := t.limiters.SlidingLog(throttle.SlidingLogConfig{
		Limit:         throttle.Limit{Count: s.Max, Per: time.Duration(s.Interval) * time.Millisecond},
		MinGap:        time.Duration(s.MinGap) * time.Millisecond,
		CountRejected: true,
	}, &clock{now: time.UnixMicro(0)})
	for _, at := range ts {
		_, _ = l.Reserve(context.Background(), throttle.Claim{Now: time.UnixMicro(at)})
	}
	return l
}

func (op rollingOp) compare(t *result, l throttle.Limiter) {
	d, err := l.Reserve(context.Background(), throttle.Claim{Now: time.UnixMicro(op.T)})
	expect(t, "error", nil, err)
	expect(t, "blocked", op.Blocked, !d.OK)
	expect(t, "remaining", op.Remaining, d.Remaining)
	next := dryRun(l, op.T).Wait
	expect(t, "next", op.Next, int64((next+time.Millisecond-1)/time.Millisecond))
	if op.Blocked {
		expect(t, "wait", next, d.Wait)
	}
}

// dryRun returns the decision on a claim at t.
func dryRun(l throttle.Limiter, t int64) throttle.Decision {
	d, _ := l.Reserve(context.Background(), throttle.Claim{Now: time.UnixMicro(t), DryRun: true})
	return d
}
