package model

import (
	"time"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// stop begins or extends a stop: a hold that the server did not state, because claim n was rejected.
// It replaces a cut. If no loop is on, one begins when the stop ends.
func (q *Quota) stop(n uint64, now time.Time) {
	inf := q.Inference
	if inf != nil && inf.Forbidden && q.Hold.Active && q.Hold.Estimated && now.Sub(q.Hold.Since) >= maxSuspectedStop {
		q.abandonStop(now)
		return
	}
	if inf != nil && !q.Hold.Active {
		inf.beforeStop, inf.loopPending = q.Span, !inf.Loop.On()
		inf.beforeStop.Until = now
	}
	r := q.rejectionOf(0, now)
	r.Estimated, r.Pause = true, q.pauseOfStop(now)
	q.Hold.Rejected(n, now, r)
	if inf != nil {
		inf.stopPending, inf.Cut = false, concurrency.Cut{}
	}
}

// abandonStop ends a stop that 403s began although the server does not accept requests: these are
// rejected for another reason. As after each hold, slow start bounds the requests that have waited.
func (q *Quota) abandonStop(now time.Time) {
	inf := q.Inference
	q.SlowStart.Bound(max(q.Hold.InFlight, concurrency.KnownBound(q.Account.InitialConcurrency)), concurrency.KnownAfter)
	q.Hold = hold.Hold{LastSent: q.InFlight.Sent, Abandoned: true}
	inf.Window, inf.Loop.Cause = learnedlimit.Window{}, throttle.CauseForbidden
	q.dropLoop(true, now)
}

// probeAfter are the times since the first accepted request at which a stop may be probed: windows
// of these usual lengths end then, if they began with that request.
var probeAfter = []time.Duration{
	time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute,
}

// forbiddenPauses are the times between the probes of a stop that 403s began, if no earlier ban is
// known: there are few probes, because each may begin the ban again. The last one is the default of
// DOSBlockingPeriod of mod_evasive.
var forbiddenPauses = []time.Duration{time.Second, 4 * time.Second, 10 * time.Second}

// pauseOfStop returns the time until the next probe of a stop; 0: the default of hold. It is the
// pause that ended the latest stop, if that was longer than hold.BasePause, and otherwise the time until
// the next element of probeAfter, with a random delay.
func (q *Quota) pauseOfStop(now time.Time) time.Duration {
	h, a := &q.Hold, q.Account
	late := time.Duration(a.Random() * float64(hold.MaxLate))
	switch elapsed := now.Sub(h.Since); {
	case !h.Active && h.LastPause > hold.BasePause:
		return min(h.LastPause, hold.MaxPause) + late
	case h.Active && h.LastPause > hold.BasePause && h.Rejections == 1 && h.LastTotal > elapsed+hold.BasePause:
		return min(h.LastTotal-elapsed, hold.MaxPause) + late
	}
	if q.Inference != nil && q.Inference.Forbidden {
		n := h.Rejections // of earlier probes: those of an ended stop do not count
		if !h.Active {
			n = 0
		}
		return forbiddenPauses[min(n, len(forbiddenPauses)-1)] + late
	}
	if q.Inference == nil || q.Inference.beforeStop.Since.IsZero() || q.Inference.Loop.On() {
		return 0
	}
	least := hold.BasePause / 4 // since the stop has just begun
	if !h.Active && q.Inference.hanging {
		least = hold.BasePause // a pause of a healthy server mostly ends before, and its responses show that
	}
	for _, length := range probeAfter {
		wait := q.Inference.beforeStop.Since.Add(length).Sub(now)
		if wait < least {
			continue
		}
		wait += statedlimit.OpeningDelay + time.Duration(a.Random()*float64(min(length/16, hold.MaxLate)))
		if length <= hold.BasePause {
			return min(wait, hold.BasePause)
		}
		return wait
	}
	return 0
}

// released updates q because a hold has ended: its probe, the latest claim, was accepted. If there
// was evidence, the window or the loop begins. Otherwise slow start bounds the requests in flight.
func (q *Quota) released(now time.Time) {
	inf := q.Inference
	if inf == nil {
		return
	}
	switch h := &q.Hold; {
	case inf.Loop.On():
	case inf.Window.On():
		inf.Window.Released(q.InFlight.Sent, q.LastGranted)
	case inf.loopPending && inf.beforeStop.N > 0: // a server that accepted nothing has shown no rate
		rejectedProbe := time.Time{} // when the latest rejected probe was; zero: there was none
		if h.RejectedAt.After(inf.beforeStop.Until) {
			rejectedProbe = h.RejectedAt
		}
		if !inf.hanging && q.LastGranted.Before(h.Until.Add(hold.BasePause)) { // a later probe does not show how long the stop had to be
			inf.Window = learnedlimit.NewWindow(inf.beforeStop, rejectedProbe, q.LastGranted, q.InFlight.Sent)
		}
		if !inf.Window.On() {
			inf.Loop.BeginAfterStop(inf.stopCause(), inf.hanging, inf.beforeStop, h.RejectedAt, q.LastGranted, now, inf.accepted.Highest(now)/2, q.InFlight.Sent)
			break
		}
		inf.Cut = concurrency.Cut{}
		inf.Window.DescribeStop(inf.statedHold, inf.Forbidden, rejectedProbe.IsZero())
	}
	if !inf.loopPending {
		q.Span = learnedlimit.AcceptedSpan{Since: q.LastGranted} // a window of the server may have begun with the probe
	}
	if !inf.Loop.On() && !inf.Window.On() {
		inf.hanging = false
		q.SlowStart.Bound(max(q.Hold.InFlight, concurrency.KnownBound(q.Account.InitialConcurrency)), concurrency.KnownAfter)
	}
	inf.loopPending, inf.beforeStop, inf.statedHold = false, learnedlimit.AcceptedSpan{}, 0
	inf.Evidence.Restart()
}
