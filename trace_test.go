package heed

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// An eventLog records the events of traces as text.
type eventLog []string

func (l *eventLog) add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

// trace returns a Trace that records all events with their Info, without the Response.
func (l *eventLog) trace(name string) *Trace {
	return &Trace{
		WaitStart: func(_ *http.Request, i WaitInfo) {
			l.add("%sWaitStart {Attempt:%d Cost:%d}", name, i.Attempt, i.Cost)
		},
		WaitDone: func(_ *http.Request, i WaitInfo) {
			l.add("%sWaitDone {Attempt:%d Cost:%d Waited:%v Limit:%s ServerImposed:%v Estimated:%v Err:%v}", name, i.Attempt, i.Cost, i.Waited, i.Limit, i.ServerImposed, i.Estimated, i.Err)
		},
		AttemptStart: func(_ *http.Request, i AttemptInfo) {
			l.add("%sAttemptStart {Attempt:%d Sent:%s}", name, i.Attempt, i.Sent.UTC().Format(time.TimeOnly))
		},
		AttemptDone: func(_ *http.Request, i AttemptInfo) {
			l.add("%sAttemptDone {Attempt:%d Sent:%s Duration:%v Status:%d Response:%v Err:%v Outcome:%v RetryAfter:%v}",
				name, i.Attempt, i.Sent.UTC().Format(time.TimeOnly), i.Duration, i.Status, i.Response != nil, i.Err, i.Outcome, i.RetryAfter)
		},
		Retry: func(_ *http.Request, i RetryInfo) {
			l.add("%sRetry {Attempt:%d Delay:%v RetryAfter:%v Status:%d Response:%v Err:%v}",
				name, i.Attempt, i.Delay.Round(time.Second), i.RetryAfter, i.Status, i.Response != nil, i.Err)
		},
		Done: func(_ *http.Request, i DoneInfo) {
			l.add("%sDone {Attempts:%d QueueWait:%v BackoffWait:%v Status:%d Response:%v Err:%v StopReason:%v}",
				name, i.Attempts, i.QueueWait, i.BackoffWait.Round(time.Second), i.Status, i.Response != nil, i.Err, i.StopReason)
		},
	}
}

func TestTrace_reportsEventsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events eventLog
		_, err := get(t, &Transport{
			Base:    newScript(respondAfter(time.Second, 500), errBroken, response{502, "", []string{"Retry-After", "3"}}, 502),
			Retry:   &RetryPolicy{MaxAttempts: 4, Backoff: threeAttempts().Backoff, RetryAfterJitter: backoff.RetryAfterJitter{Rand: func() float64 { return 0 }}},
			Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "own", Count: 1, Per: 5 * time.Second}),
			Trace:   events.trace(""),
		})
		require.NoError(t, err)
		require.Equal(t, eventLog{
			"WaitStart {Attempt:1 Cost:1}",
			"WaitDone {Attempt:1 Cost:1 Waited:0s Limit: ServerImposed:false Estimated:false Err:<nil>}",
			"AttemptStart {Attempt:1 Sent:00:00:00}",
			"AttemptDone {Attempt:1 Sent:00:00:00 Duration:1s Status:500 Response:true Err:<nil> Outcome:failed RetryAfter:0s}",
			"Retry {Attempt:1 Delay:1s RetryAfter:0s Status:500 Response:true Err:<nil>}",
			"WaitStart {Attempt:2 Cost:1}",
			"WaitDone {Attempt:2 Cost:1 Waited:3s Limit:own ServerImposed:false Estimated:false Err:<nil>}",
			"AttemptStart {Attempt:2 Sent:00:00:05}",
			"AttemptDone {Attempt:2 Sent:00:00:05 Duration:0s Status:0 Response:false Err:broken Outcome:failed RetryAfter:0s}",
			"Retry {Attempt:2 Delay:1s RetryAfter:0s Status:0 Response:false Err:broken}",
			"WaitStart {Attempt:3 Cost:1}",
			"WaitDone {Attempt:3 Cost:1 Waited:4s Limit:own ServerImposed:false Estimated:false Err:<nil>}",
			"AttemptStart {Attempt:3 Sent:00:00:10}",
			"AttemptDone {Attempt:3 Sent:00:00:10 Duration:0s Status:502 Response:true Err:<nil> Outcome:failed RetryAfter:0s}",
			"Retry {Attempt:3 Delay:3s RetryAfter:3s Status:502 Response:true Err:<nil>}",
			"WaitStart {Attempt:4 Cost:1}",
			"WaitDone {Attempt:4 Cost:1 Waited:2s Limit:own ServerImposed:false Estimated:false Err:<nil>}",
			"AttemptStart {Attempt:4 Sent:00:00:15}",
			"AttemptDone {Attempt:4 Sent:00:00:15 Duration:0s Status:502 Response:true Err:<nil> Outcome:failed RetryAfter:0s}",
			"Done {Attempts:4 QueueWait:9s BackoffWait:5s Status:502 Response:true Err:<nil> StopReason:heed: no attempts are left: RetryPolicy.MaxAttempts is 4}",
		}, events)
	})
}

// TestTrace_namesTheLimitOfAWait checks the limit that WaitDone names: one of the
// program, one that the server stated, and one that is estimated, after a wait and for a
// request that is rejected.
func TestTrace_namesTheLimitOfAWait(t *testing.T) {
	throttled := response{429, "", []string{"Retry-After", "5"}}
	for name, tt := range map[string]struct {
		tr   *Transport
		want WaitInfo
	}{
		"own":     {&Transport{Base: newScript(200), Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "own", Count: 1, Per: 5 * time.Second})}, WaitInfo{Limit: "own"}},
		"stated":  {&Transport{Base: newScript(append(repeat(5, throttled), 200)...), Quota: &quota.Tracker{NeverTest: true, Rand: func() float64 { return 0 }}}, WaitInfo{Limit: "api.test: retry-after", Reason: "retry-after", ServerImposed: true}},
		"learned": {&Transport{Base: newScript(200), Limiter: serverLimit{new(time.Time), true}}, WaitInfo{Limit: "learned", ServerImposed: true, Estimated: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var last WaitInfo
			tt.tr.Trace = &Trace{WaitDone: func(_ *http.Request, i WaitInfo) { last = i }}
			if name == "stated" {
				confirmHold(t, tt.tr)
			} else {
				_, err := get(t, tt.tr)
				require.NoError(t, err)
			}
			require.Equal(t, WaitInfo{Attempt: 1, Cost: 1}, last)

			_, err := tt.tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{NoWait: true})))
			require.ErrorIs(t, err, ErrMaxWait, name)
			require.ErrorIs(t, last.Err, throttle.ErrRejected)
			want := tt.want
			want.Attempt, want.Cost, want.Err = 1, 1, last.Err
			require.Equal(t, want, last, "rejected")

			_, err = tt.tr.RoundTrip(request(t, "GET", ""))
			require.NoError(t, err)
			require.Positive(t, last.Waited)
			want.Err, want.Waited, want.At, want.StartLimit, want.ExpectedEnd = nil, last.Waited, last.At, want.Limit, last.ExpectedEnd
			require.Equal(t, want, last, "granted")
			require.Equal(t, time.Now(), last.At.Add(last.Waited))
			require.Equal(t, time.Now(), last.ExpectedEnd)
		})
	}
}

// A serverLimit is a limit of a server of one request in 5 s.
type serverLimit struct {
	next      *time.Time
	estimated bool
}

func (serverLimit) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (serverLimit) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}
func (l serverLimit) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	wait := max(l.next.Sub(c.Now), 0)
	if wait > 0 {
		d := throttle.Decision{Policy: "learned", At: c.Now, Wait: wait, ServerImposed: true, Estimated: l.estimated}
		if !l.estimated {
			d.Expected = wait
		}
		return d, nil
	}
	if !c.DryRun {
		*l.next = c.Now.Add(5 * time.Second)
	}
	return throttle.Decision{OK: true, Policy: "learned", At: c.Now}, nil
}

// TestWithTrace_addsToTheTransport checks the order of the traces of the Transport and of the
// context, and that the context's own Hold and LimitLearned are not called.
func TestWithTrace_addsToTheTransport(t *testing.T) {
	for _, own := range []bool{false, true} {
		var events eventLog
		tr := &Transport{Base: newScript(200)}
		var want eventLog
		for _, event := range []string{
			"WaitStart {Attempt:1 Cost:1}",
			"WaitDone {Attempt:1 Cost:1 Waited:0s Limit: ServerImposed:false Estimated:false Err:<nil>}",
		} {
			if own {
				want = append(want, "own "+event)
			}
			want = append(want, "first "+event, "second "+event)
		}
		if own {
			tr.Trace = events.trace("own ")
		}
		second := events.trace("second ")
		second.Hold = func(quota.HoldInfo) { events.add("Hold") }
		second.LimitLearned = func(quota.LimitLearnedInfo) { events.add("LimitLearned") }
		ctx := WithTrace(WithTrace(t.Context(), events.trace("first ")), second)
		ctx = WithTrace(WithOptions(ctx, RequestOptions{NoRetry: true}), nil)
		require.True(t, OptionsFrom(ctx).NoRetry)
		_, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.NoError(t, err)
		require.Equal(t, want, events[:len(want)])
		require.Len(t, events, 2*len(want)+map[bool]int{false: 2, true: 3}[own], "and as many of AttemptStart, AttemptDone and Done")

		events = nil
		_, err = get(t, tr)
		require.NoError(t, err)
		require.Equal(t, own, len(events) == 5, "a request without a trace of its own")
	}
}

func TestWithTrace_nilReturnsTheContext(t *testing.T) {
	require.Equal(t, t.Context(), WithTrace(t.Context(), nil))
}

func TestJoinTraces_skipsNil(t *testing.T) {
	require.Nil(t, JoinTraces())
	require.Nil(t, JoinTraces(nil, nil))
	one := &Trace{}
	require.Same(t, one, JoinTraces(nil, one, nil))
	require.Equal(t, &Trace{}, JoinTraces(one, nil, &Trace{}), "a function that no trace has stays nil")

	calls := ""
	hold := func(name string) *Trace { return &Trace{Hold: func(quota.HoldInfo) { calls += name }} }
	both := JoinTraces(hold("a"), one, hold("b"), &Trace{Done: func(*http.Request, DoneInfo) { calls += "c" }}, nil)
	both.Hold(quota.HoldInfo{})
	both.Done(nil, DoneInfo{})
	require.Equal(t, "abc", calls)
	require.Nil(t, both.LimitLearned)
	require.Nil(t, both.Retry)
}

// TestWithTrace_aPanicLeavesTheTransportUsable panics in the second of two joined hooks.
func TestWithTrace_aPanicLeavesTheTransportUsable(t *testing.T) {
	l := &concurrencyLimit{max: 1}
	tr := &Transport{Base: newScript(200), Limiter: l, Trace: &Trace{WaitDone: func(*http.Request, WaitInfo) {}}}
	ctx := WithTrace(t.Context(), &Trace{WaitDone: boom[WaitInfo]})
	require.PanicsWithValue(t, "hook", func() { tr.RoundTrip(request(t, "GET", "").WithContext(ctx)) })
	require.Zero(t, l.held())
	_, err := get(t, tr)
	require.NoError(t, err)
}

// TestWithTrace_allocatesOnlyOnce checks that a request whose context carries options and a
// trace does not allocate for them.
func TestWithTrace_allocatesOnlyOnce(t *testing.T) {
	tr := &Transport{Base: &fixedResponse{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}}
	ctx := WithOptions(context.Background(), RequestOptions{Priority: 1})
	ctx = WithTrace(ctx, &Trace{AttemptDone: func(*http.Request, AttemptInfo) {}})
	req, err := http.NewRequestWithContext(ctx, "GET", "http://api.test/", nil)
	require.NoError(t, err)
	n := testing.AllocsPerRun(1000, func() { tr.RoundTrip(req) })
	require.True(t, racing || n == 0, n)
}
