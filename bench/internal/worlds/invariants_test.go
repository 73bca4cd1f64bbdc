package worlds

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// attempts returns the log of a run of n calls that start at 0 and end at 100 s.
func attempts(w *World, n int, log ...Attempt) *Run {
	r := &Run{World: w, Attempts: log, Elapsed: 100 * time.Second}
	w.calls = make([]call, n)
	r.Results = make([]Result, n)
	for i := range r.Results {
		r.Results[i].Duration = 100 * time.Second
	}
	return r
}

func TestDisobedience_countsEarlyRepeats(t *testing.T) {
	rejected := Attempt{Number: 1, Status: 429, Rejected: true, Done: 10 * ms, RetryAfter: 1010 * ms, Reset: 3 * time.Second}
	for at, want := range map[time.Duration]int{1000 * ms: 1, 1009 * ms: 0, 2000 * ms: 0} {
		require.Equal(t, want, Disobedience(attempts(&World{}, 2, rejected, Attempt{Call: 1, Sent: 500 * ms}, Attempt{Number: 2, Sent: at})), at)
	}
	again := attempts(&World{}, 1, rejected, Attempt{Number: 2, Sent: 1020 * ms})
	require.Zero(t, EarlyRepeats(again), "Retry-After is more precise")
	again.Attempts[0].RetryAfter = 0
	require.Equal(t, []int{0, 1}, []int{Disobedience(again), EarlyRepeats(again)})
	failed := rejected
	failed.Rejected = false
	require.Zero(t, Disobedience(attempts(&World{}, 1, failed, Attempt{Number: 2, Sent: 20 * ms})))
}

func TestDelays_countsCallsThatWait(t *testing.T) {
	w := &World{}
	require.True(t, w.uneventful())
	sent := func(at time.Duration) Attempt { return Attempt{Number: 1, Sent: at} }
	require.Equal(t, 0, Delays(attempts(w, 1, sent(ms))))
	require.Equal(t, 1, Delays(attempts(w, 1, sent(2*ms))))
	require.Equal(t, 1, Delays(attempts(w, 1)), "not sent")
	require.False(t, (&World{Stated: &Statement{}}).uneventful())
	require.False(t, (&World{Troubles: []Trouble{{Share: .1}}}).uneventful())
	require.True(t, (&World{Troubles: []Trouble{{Share: .1, Permission: true}}}).uneventful())
}

func TestUntested_countsTimesWithoutTests(t *testing.T) {
	w := &World{Latency: Latency{Median: 100 * ms}, Troubles: []Trouble{{Share: 1, To: 10 * time.Second, Status: 503}}}
	require.True(t, w.recovers())
	failed := Attempt{Number: 1, Status: 503, Cause: ByTrouble, Sent: 5 * time.Second, Done: 5100 * ms}
	accepted := func(call int32, at time.Duration) Attempt {
		return Attempt{Call: call, Number: 1, Status: 200, Sent: at, Done: at + 100*ms}
	}
	soon, later := accepted(1, 11900*ms), accepted(2, 12150*ms)
	require.Equal(t, 0, Untested(attempts(w, 3, failed, soon, later)))
	require.Equal(t, 1, Untested(attempts(w, 3, failed, accepted(1, 12100*ms), later)), "2 s without a request")
	require.Equal(t, 1, Untested(attempts(w, 3, failed, soon, accepted(2, 13900*ms))), "a slow release")
	w.Troubles[0].Status = 429
	rejected := failed
	rejected.Status = 429
	require.Equal(t, 1, Untested(attempts(w, 3, rejected, soon, later)), "1 s without a request")
	w.Troubles[0].To = 0
	require.False(t, w.recovers())
}

func TestContagion_countsFailuresOfOthers(t *testing.T) {
	w := &World{Load: Load{Tenants: 50}, Troubles: []Trouble{{By: ByTenant, Share: .02, Status: 429}}}
	ours, peer := attempts(w, 1000), attempts(w, 1000)
	for i := range w.calls {
		w.calls[i].tenant = int32(i % 50)
		if w.affected(i) {
			ours.Results[i].Reason, peer.Results[i].Reason = BadStatus, BadStatus
		}
	}
	require.Equal(t, 20, w.affectedCalls())
	require.True(t, w.isolated())
	others := 0
	for i := range w.calls {
		if !w.affected(i) && others < 2 {
			ours.Results[i].Reason = Unsent
			others++
		}
	}
	require.Equal(t, 2, Contagion(ours, peer))
	ours.Results[0].Reason, ours.Results[1].Reason = OK, OK
	w.Troubles[0].Share = .5
	require.False(t, w.isolated())
}

func TestHammering_countsFirstAttempts(t *testing.T) {
	w := &World{Troubles: []Trouble{{Share: 1, From: time.Second, To: 31 * time.Second, Status: 429}}}
	require.True(t, w.rejectsAll())
	log := []Attempt{{Number: 1, Rejected: true, Sent: time.Second, Done: 1100 * ms}}
	for i := range 200 {
		log = append(log, Attempt{Call: int32(i), Number: 1 + int32(i%2), Sent: 1200*ms + time.Duration(i)*ms, Rejected: true})
	}
	require.Equal(t, 40, Hammering(attempts(w, 200, log...)))
	require.Zero(t, Hammering(attempts(w, 200, log[:100]...)))
}

func TestRejections_areFewAfterAMinute(t *testing.T) {
	w := &World{Limit: &Limit{Kind: Bucket, Load: 2, Backends: 1, Scope: PerHost}}
	require.True(t, w.overLimit())
	var log []Attempt
	for i := range 1000 {
		a := Attempt{Call: int32(i), Sent: time.Duration(i) * 200 * ms}
		if i%20 == 0 {
			a.Cause = ByLimit
		}
		log = append(log, a)
	}
	require.Equal(t, 35, Rejections(attempts(w, 1000, log...)))
	require.Zero(t, Rejections(attempts(w, 1000, log[1:400]...)))
}
