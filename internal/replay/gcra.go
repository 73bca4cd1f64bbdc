package replay

import (
	"context"
	"encoding/json"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A gcra is a scenario of redis_rate. Its own answers are those of doubles; compared
// are the exact ones that stand beside them.
//
// Meant to differ: a claim of more than the burst is to wait Forever, where theirs
// names a wait after which it is refused again. And a reading of the clock older than
// one granted at counts as that one, where theirs takes it as it is; what differs in
// such an operation is waived.
type gcra struct {
	Rate, Burst int64
	Period      float64 `json:"period_s"`
	Ops         []gcraOp
}

type gcraOp struct {
	Op         string
	T          int64 `json:"t_us"`
	N          int64
	Allowed    int64   `json:"exact_allowed"`
	Remaining  int64   `json:"exact_remaining"`
	RetryAfter float64 `json:"exact_retry_after"` // seconds; below 0: none
	ResetAfter float64 `json:"exact_reset_after"`
}

func replayGCRA(line []byte, t *result) error {
	var s gcra
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	l := throttle.Limit{Count: s.Rate, Per: time.Duration(s.Period * 1e9), Burst: s.Burst}
	b := t.limiters.TokenBucket(l, nil)
	newest := int64(0)
	for _, op := range s.Ops {
		t.op()
		if op.Op == "reset" {
			b, newest = t.limiters.TokenBucket(l, nil), 0
			continue
		}
		t.waive = op.T < newest
		if err := op.replay(t, b, s.Burst); err != nil {
			return err
		}
		if op.Allowed > 0 {
			newest = max(newest, op.T)
		}
	}
	return nil
}

// replay plays one operation. With n of 0 it only looks; at most n is n, or all there
// are. An older reading takes what the trace took, so that both go on alike.
func (op gcraOp) replay(t *result, b throttle.Limiter, burst int64) error {
	ctx := context.Background()
	c := throttle.Claim{Cost: op.N, Now: time.UnixMicro(op.T), DryRun: op.N == 0}
	if op.Op == "atMost" && op.N > 0 {
		d, err := b.Reserve(ctx, throttle.Claim{Now: c.Now, DryRun: true})
		if err != nil {
			return err
		}
		c.Cost = max(min(op.N, d.Remaining), 1)
	}
	if t.waive {
		c.DryRun = op.Allowed == 0
	}
	d, err := b.Reserve(ctx, c)
	if err != nil {
		return err
	}
	allowed := int64(0)
	if d.OK {
		allowed = min(c.Cost, op.N)
	}
	expect(t, "allowed", op.Allowed, allowed)
	near(t, "reset", op.ResetAfter*1e9, float64(d.ResetAfter), 2)
	switch {
	case d.OK || op.N == 0:
		expect(t, "remaining", op.Remaining, d.Remaining)
	case c.Cost > burst:
		expect(t, "wait", throttle.Forever, d.Wait)
	default:
		near(t, "wait", op.RetryAfter*1e9, float64(d.Wait), 2+float64(t.limiters.Unit))
	}
	return nil
}
