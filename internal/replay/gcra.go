package replay

import (
	"context"
	"encoding/json"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A gcra is a scenario of redis_rate. redis_rate computes in doubles; the decisions are
// compared with the exact values, which the trace states as well.
//
// Intended differences: a claim of more than the burst has the wait Forever, while
// redis_rate returns a wait after which it rejects the claim again. A reading of the clock
// that is older than one granted at counts as that one, while redis_rate uses it unchanged;
// differences in such an operation are waived.
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
	RetryAfter float64 `json:"exact_retry_after"` // seconds; negative: none
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

// replay replays one operation. An n of 0 is a dry run. The operation atMost takes n units,
// or all available units if there are fewer. A claim with an older reading takes what the
// trace took, so that later operations can be compared.
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
