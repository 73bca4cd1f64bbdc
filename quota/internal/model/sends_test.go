package model

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A slowWindow is a server with a window of limit requests per second that it states, whose responses take latency. It
// counts a request when it arrives, and says what was left then.
type slowWindow struct {
	limit   int64
	latency time.Duration
	used    map[int64]int64 // by the second
	open    []slowResponse  // in the order in which they are sent
}

type slowResponse struct {
	decision throttle.Decision
	feedback throttle.Feedback
	at       time.Time
}

// play sends as many requests as q admits of those that want arrives each millisecond, and returns how many were sent,
// how many of them were rejected, and the longest wait. Like a Queue, it asks when a wait that q states ends, and after a response.
func (w *slowWindow) play(q *Quota, from time.Time, length time.Duration, want func(ms int64) int) (sent, rejected int, longest time.Duration) {
	var waiting []time.Time
	asks := from
	for i := range int64(length / ms) {
		now := from.Add(time.Duration(i) * ms)
		for len(w.open) > 0 && !w.open[0].at.After(now) {
			r := w.open[0]
			w.open = w.open[1:]
			respond(q, r.decision, r.feedback, now)
			asks = now
		}
		for range want(i) {
			waiting = append(waiting, now)
		}
		for len(waiting) > 0 && !now.Before(asks) {
			d := reserve(q, now)
			if !d.OK {
				if asks = now.Add(d.Wait); d.Wait == 0 {
					asks = from.Add(length)
				}
				break
			}
			longest = max(longest, now.Sub(waiting[0]))
			waiting = waiting[1:]
			second := now.Unix()
			limit := throttle.RemoteLimit{Limit: w.limit, Remaining: max(w.limit-w.used[second]-1, 0), ResetAfter: s, Resolution: s}
			f := states(accepted, limit)
			if w.used[second]++; w.used[second] > w.limit {
				f = states(stated(s), limit)
				rejected++
			}
			sent++
			w.open = append(w.open, slowResponse{d, f, now.Add(w.latency)})
		}
	}
	return sent, rejected, longest
}

// If responses take five times as long as units to come back, the requests in flight that were sent before the present
// window do not count: at less than half of the limit no request waits
// longer than a response takes and 2 s.
// A burst of more than the limit is sent within some windows.
func TestQuota_responsesThatTakeLongerThanAWindow(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, latency := range []time.Duration{1500 * ms, 3 * s, 5 * s} {
		q, w := known(0), &slowWindow{limit: 11, latency: latency, used: map[int64]int64{}}
		_, _, _ = w.play(q, start, latency+s, func(i int64) int { return map[bool]int{true: 1}[i%500 == 0] }) // the limit is learned
		sent, rejected, longest := w.play(q, at(latency+s), 2*time.Minute, func(int64) int { return map[bool]int{true: 1}[random.IntN(250) == 0] })
		require.LessOrEqual(t, rejected, sent/25, "%v: what a response states is as old as it took", latency)
		require.Greater(t, sent, 400, latency)
		require.LessOrEqual(t, longest, 2*s+latency, latency)
		require.NotNil(t, q.sends)
		sent, _, longest = w.play(q, at(latency+121*s), 3*time.Minute, func(i int64) int { return map[bool]int{true: 60}[i == 0] })
		require.Equal(t, 60, sent, latency)
		require.LessOrEqual(t, longest, max(20*s, 2*latency), "a burst, %v", latency)
	}
}

// The log of sent requests is kept only while responses take longer than units to come back, and its memory is accounted
// for.
func TestQuota_logOfSentRequests(t *testing.T) {
	limit := throttle.RemoteLimit{Limit: 10, Remaining: 9, ResetAfter: s}
	q := known(0)
	before := q.Account.Memory.Load()
	slow := func(from time.Time, took time.Duration) {
		for i := range 30 {
			now := from.Add(time.Duration(i) * 10 * took)
			d := reserve(q, now)
			require.True(t, d.OK)
			respond(q, d, states(accepted, limit), now.Add(took))
		}
	}
	slow(start, 500*ms)
	require.Nil(t, q.sends)
	estimate := q.Account.Memory.Load() - before
	slow(at(time.Hour), 20*s)
	require.NotNil(t, q.sends)
	require.Equal(t, before+estimate+statedlimit.LogBytes, q.Account.Memory.Load())
	require.Equal(t, &q.InFlight, q.counted(&statedlimit.Estimate{}, at(time.Hour)), "its window is not known")
	slow(at(9*time.Hour), 10*ms)
	require.Nil(t, q.sends)
	require.Equal(t, before+estimate, q.Account.Memory.Load())
	slow(at(19*time.Hour), 20*s)
	require.Equal(t, slices.Max([]int64{before, q.Account.Memory.Load()}), before+q.DropAll())
}

// While the first request of a window that is shorter than responses is in flight, the wait of the next one ends with the window, and a little
// later, because the first one may have arrived late.
func TestQuota_aWindowEndsBeforeItsFirstResponse(t *testing.T) {
	q, now := known(0), start
	usedUp := throttle.RemoteLimit{Limit: 1, Remaining: 0, ResetAfter: s}
	for i := range 4 {
		d := reserve(q, now)
		require.True(t, d.OK)
		now = now.Add(12 * s)
		respond(q, d, states(accepted, usedUp), now)
		if i == 1 { // proves the limit
			d := reserve(q, now.Add(s))
			require.True(t, d.OK)
			now = now.Add(13 * s)
			respond(q, d, states(stated(s), usedUp), now)
		}
		now = now.Add(2 * s)
	}
	require.True(t, q.Estimates[0].Proven())
	for range 5 {
		first := reserve(q, now)
		require.True(t, first.OK)
		next := reserve(q, now)
		require.False(t, next.OK)
		require.Equal(t, s+statedlimit.OpeningDelay, next.Wait)
		now = now.Add(s + statedlimit.OpeningDelay)
	}
}

// Where responses take longer than a window lasts, what an accepted one states is over when it arrives, so that it changes nothing: as
// many requests as the limit are sent in each window, and each of them frees its unit a window after it was sent. A rejection, which
// arrives sooner, is obeyed.
func TestQuota_statementsThatAreOverChangeNothing(t *testing.T) {
	q, now := known(0), start
	limit := func(left int64) throttle.RemoteLimit {
		return throttle.RemoteLimit{Limit: 3, Remaining: left, ResetAfter: s}
	}
	for range 20 { // the latency is known
		d := reserve(q, now)
		now = now.Add(10 * s)
		respond(q, d, states(accepted, limit(2)), now)
	}
	d := reserve(q, now)
	respond(q, d, states(stated(s), limit(0)), now.Add(ms)) // proves the limit
	now = now.Add(2 * s)
	var open []throttle.Decision
	total, left := 0, map[uint64]int64{} // by the response to each
	var times []time.Time                // of these
	for end := now.Add(60 * s); now.Before(end); now = now.Add(10 * ms) {
		if len(open) > 0 && now.Sub(open[0].At) >= 10*s {
			respond(q, open[0], states(accepted, limit(left[open[0].Grant])), now)
			open = open[1:]
		}
		if d := reserve(q, now); d.OK {
			d.At, times = now, append(times, now)
			for left[d.Grant] = 3; len(times) > 0 && now.Sub(times[0]) >= s; times = times[1:] {
			}
			left[d.Grant] -= int64(len(times))
			require.GreaterOrEqual(t, left[d.Grant], int64(0), "no more than three in any second")
			open = append(open, d)
			total++
		}
	}
	require.InDelta(t, 60*3/1.02, total, 6)
	d = reserve(q, now)
	for ; !d.OK; d = reserve(q, now) {
		now = now.Add(10 * ms)
	}
	respond(q, d, states(stated(5*s), throttle.RemoteLimit{Limit: 3, Remaining: 0, ResetAfter: 5 * s}), now)
	require.False(t, reserve(q, now.Add(2*s)).OK && !q.Testing())
}

// Of a limit that others use, too, and whose statements are over when they arrive, as much is used as they leave, also when they begin or end.
func TestQuota_usesWhatOthersLeaveOfAShortWindow(t *testing.T) {
	const limit, phase = 6, 60 * s
	for _, others := range [][2]int64{{0, 0}, {3, 3}, {5, 5}, {0, 3}, {0, 5}, {5, 0}} { // of each window, before and after a minute
		q, now := known(0), start
		type sent struct {
			d        throttle.Decision
			f        throttle.Feedback
			response time.Time
		}
		var open []sent
		var window time.Time
		var used, accepted, rejected int64
		for ; now.Before(at(2 * phase)); now = now.Add(10 * ms) {
			open = slices.DeleteFunc(open, func(r sent) bool {
				if now.Before(r.response) {
					return false
				}
				respond(q, r.d, r.f, now)
				return true
			})
			d := reserve(q, now)
			if !d.OK {
				continue
			}
			if w := now.Truncate(s); w.After(window) {
				window, used = w, others[now.Sub(start)/phase]
			}
			used++
			reset, late := window.Add(s).Sub(now), now.After(at(phase+20*s))
			r := sent{d, states(throttle.Feedback{}, throttle.RemoteLimit{Limit: limit, Remaining: max(limit-used, 0), ResetAfter: reset}), now.Add(5 * s)}
			if used > limit {
				r.f, r.response = states(stated(reset), r.f.RemoteLimits...), now.Add(200*ms)
			}
			switch {
			case !late:
			case used > limit:
				rejected++
			default:
				accepted++
			}
			open = append(open, r)
		}
		all := 40 * (limit - others[1])
		require.GreaterOrEqual(t, accepted, all*3/5, "%d others", others)
		require.LessOrEqual(t, rejected, all/5, "%d others", others)
	}
}
