package replay

import (
	"context"
	"encoding/json"
	"time"

	"github.com/heed-go/heed/throttle"
)

// An nginx is a scenario of limit_req: the decisions must be equal to the millisecond,
// including all truncations.
//
// Intended differences: nginx accepts a clock that steps back by more than a minute.
// Differences after such a step are waived.
type nginx struct {
	Milli int64 `json:"rate_milli"`
	Burst int64
	Delay json.RawMessage // a number, or "nodelay"
	Ops   []struct {
		T      int64 `json:"t_ms"`
		Result string
		Delay  int64 `json:"delay_ms"`
		Excess int64 `json:"excess_milli"`
	}
}

func replayNginx(line []byte, t *result) error {
	var s nginx
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	limit := throttle.NginxConfig{Rate: s.Milli, Per: 1000 * time.Second, Burst: s.Burst}
	if limit.NoDelay = string(s.Delay) == `"nodelay"`; !limit.NoDelay {
		if err := json.Unmarshal(s.Delay, &limit.Delay); err != nil {
			return err
		}
		limit.Delay = min(limit.Delay, limit.Burst)
	}
	l := t.limiters.Nginx(limit, &clock{now: time.UnixMilli(0)})
	last := int64(0)
	for i, op := range s.Ops {
		t.op()
		t.waive = t.waive || i > 0 && op.T-last < -60000
		d, err := throttle.ReserveAhead(context.Background(), l, throttle.Claim{Now: time.UnixMilli(op.T)}, throttle.Forever)
		if err != nil {
			return err
		}
		result := "reject"
		if d.OK {
			last = max(last, op.T)
			if result = "pass"; d.Wait > 0 {
				result = "delay"
			}
			expect(t, "delay", op.Delay, d.Wait.Milliseconds())
			expect(t, "excess", (op.Excess*1000+1000*1000+s.Milli-1)/s.Milli, d.ResetAfter.Milliseconds())
		}
		expect(t, "result", op.Result, result)
	}
	return nil
}
