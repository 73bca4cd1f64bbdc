package heed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/stretchr/testify/require"
)

// A lockedBuffer is a bytes.Buffer to which goroutines of LogTrace may write while a test reads it.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take returns what was written since the last call.
func (l *lockedBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// logLines returns a LogTrace and the records that it has written, without their times.
func logLines() (*Trace, func() []string) {
	var b lockedBuffer
	trace := LogTrace(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	return trace, func() []string { return strings.Split(strings.TrimSuffix(b.take(), "\n"), "\n") }
}

func TestLogTrace_logsWaitsRetriesHoldsAndFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trace, lines := logLines()
		tr := &Transport{
			Base:    newScript(append(repeat(6, response{503, "", []string{"Retry-After", "3"}}), errBroken, 500, 500)...),
			Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "own", Count: 1, Per: 500 * time.Millisecond}),
			Retry:   &RetryPolicy{MaxFailures: 4, Backoff: threeAttempts().Backoff, RetryAfterJitter: noJitter},
			Quota:   &quota.Tracker{Rand: func() float64 { return 0 }, NeverTest: true},
			Trace:   trace,
		}
		confirmHold(t, tr)
		got := lines()
		require.Contains(t, got[0], `level=WARN msg="quota api.test (retry-after) is held for 3`)
		_, err := get(t, tr)
		require.NoError(t, err)
		got = lines()
		require.Equal(t, []string{
			`level=INFO msg="waited 3 s for quota api.test (retry-after)" method=GET host=api.test attempt=1 wait=3s limit="api.test: retry-after" ahead=0 granted=true`,
			`level=INFO msg="attempt 1 failed with status 503: retry in 3 s" method=GET host=api.test attempt=1 status=503 delay=3s`,
			`level=INFO msg="attempt 2 failed: broken: retry in 1 s" method=GET host=api.test attempt=2 status=0 delay=1s`,
			`level=INFO msg="attempt 3 failed with status 500: retry in 1 s" method=GET host=api.test attempt=3 status=500 delay=1s`,
			// The retry after attempt 4 is counted with that after attempt 3, see TestLogTrace_sumsUpSimilarRecords.
			`level=WARN msg="gave up: heed: no attempts are left: RetryPolicy.MaxFailures is 4 (after 5 attempts, the last with status 500)" method=GET host=api.test attempts=5 status=500 queue_wait=3s backoff_wait=6s`,
		}, dropHolds(got))
	})
}

// dropHolds returns the lines that are not about holds.
func dropHolds(lines []string) (rest []string) {
	for _, l := range lines {
		if !strings.Contains(l, " held ") {
			rest = append(rest, l)
		}
	}
	return rest
}

func TestLogTrace_logsWaitsOfASecondOrMore(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		999 * time.Millisecond: "",
		time.Second:            `level=INFO msg="waited 1 s for limit own" method=GET host=api.test attempt=1 wait=1s limit=own ahead=0 granted=true`,
	} {
		synctest.Test(t, func(t *testing.T) {
			trace, lines := logLines()
			tr := &Transport{Base: newScript(200), Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "own", Count: 1, Per: wait}), Trace: trace}
			for range 2 {
				_, err := get(t, tr)
				require.NoError(t, err)
			}
			require.Equal(t, []string{want}, lines())
		})
	}
}

func TestLogTrace_aCanceledRequestIsNoWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			ctx   func() (context.Context, context.CancelFunc)
			level string
		}{
			"canceled": {func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(2*time.Second, func() { cancel(errors.New("the user left")) })
				return ctx, func() {}
			}, "INFO"},
			"deadline": {func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 2*time.Second) }, "WARN"},
		} {
			trace, lines := logLines()
			tr := &Transport{Base: newScript(200), Limiter: &concurrencyLimit{max: 0}, Trace: trace}
			ctx, cancel := tt.ctx()
			_, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
			cancel()
			require.Error(t, err)
			got := lines()
			require.Len(t, got, 2, name)
			require.Contains(t, got[0], "waited 2 s for")
			require.Contains(t, got[1], "level="+tt.level+` msg="gave up: `, name)
		}
	})
}

// TestLogTrace_hasNoSecrets sends a request that has a secret wherever one may be, to a Base
// and with a hook whose errors repeat its URL.
func TestLogTrace_hasNoSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trace, lines := logLines()
		req := request(t, "GET", "")
		req.URL.Path, req.URL.RawQuery, req.URL.Fragment = "/botsecret/x", "key=secret", "secret"
		req.Header.Set("Authorization", "Bearer secret")
		tr := &Transport{
			Base: newScript(fmt.Errorf("Get %q: broken", "https://user:secret@api.test/?key=secret#secret"), 200),
			Key:  func(*http.Request) string { return "secret" },
			Retry: &RetryPolicy{MaxAttempts: 2, Backoff: threeAttempts().Backoff, BeforeSend: func(r *http.Request, n int) error {
				if n == 2 {
					return errors.New("cannot sign https://api.test/?key=secret")
				}
				return nil
			}},
			Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "own", Count: 1, Per: time.Minute}),
			Trace:   trace,
		}
		_, err := tr.RoundTrip(req)
		require.Error(t, err)
		all := strings.Join(lines(), "\n")
		require.NotContains(t, all, "secret")
		for _, part := range []string{"attempt 1 failed: Get", "waited 59 s for limit own", "cannot sign https://api.test/"} {
			require.Contains(t, all, part)
		}
	})
}

// TestLogTrace_hasNoKeys checks the records of requests that a limit with a key rejects, where the
// error that the caller gets names the key.
func TestLogTrace_hasNoKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const key = "se\"cret"
		for name, tr := range map[string]*Transport{
			"rejected before the first attempt": {Base: newScript(200)},
			"rejected before a retry":           {Base: newScript(errBroken)},
			"an error that wraps the rejection": {Base: newScript(200), Limits: func(*http.Request, *queue.Ticket) error {
				return errors.Join(errBroken, fmt.Errorf("tenant: %w", &throttle.RejectedError{Key: key}))
			}},
		} {
			trace, lines := logLines()
			tr.Trace, tr.Key = trace, func(*http.Request) string { return key }
			tr.Limiter = throttle.NewTokenBucket(throttle.Limit{Name: "own", Count: 1, Per: time.Minute})
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			var err error
			for range 2 {
				_, err = tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
			}
			cancel()
			require.ErrorContains(t, err, "cret", name)
			all := strings.Join(lines(), "\n")
			require.Contains(t, all, "gave up", name)
			require.Contains(t, all, "throttle: rejected by limit", name)
			require.NotContains(t, all, "cret", name)
		}
	})
}

func TestLogTrace_nilIsTheDefaultLogger(t *testing.T) {
	var b bytes.Buffer
	old := slog.Default()
	defer slog.SetDefault(old)
	trace := LogTrace(nil)
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	trace.Hold(quota.HoldInfo{Host: "api.test", Limit: "api.test: quota"})
	require.Contains(t, b.String(), "quota api.test is not held any more")
}

// TestGiveUpError_hasTheLongestWait checks that the error of a request that waited describes the
// wait as WaitDone does. TestSentence_isTheSameInErrorLogSpanAndPage of module otelheed compares
// that with logs, spans and the debug page.
func TestGiveUpError_hasTheLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trace, lines := logLines()
		var mu sync.Mutex
		var events []WaitInfo
		record := func(_ *http.Request, i WaitInfo) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, i)
		}
		tr := &Transport{
			Base:  newScript(append(repeat(5, response{429, "", []string{"Retry-After", "5"}}), 200, errBroken)...),
			Quota: &quota.Tracker{Rand: func() float64 { return 0 }, NeverTest: true},
			Trace: &Trace{WaitDone: record},
		}
		confirmHold(t, tr)
		events = nil
		var err error
		var wg sync.WaitGroup
		for _, result := range []*error{new(error), &err} { // the second request fails
			req := request(t, "POST", "")
			if result == &err { // a LogTrace of both requests would count the second wait as a repeat
				req = req.WithContext(WithTrace(t.Context(), trace))
			}
			wg.Go(func() { _, *result = tr.RoundTrip(req) })
			synctest.Wait()
		}
		wg.Wait()
		const sentence = "waited 5 s for quota api.test (retry-after), 1 ahead"
		require.Equal(t, sentence, events[1].String())
		require.ErrorContains(t, err, " (after 1 attempt, 5 s of waiting): "+sentence+": 1: broken")
		require.Contains(t, strings.Join(lines(), "\n"), `msg="`+sentence+`"`)
		var g *GiveUpError
		require.ErrorAs(t, err, &g)
		require.Equal(t, events[1], g.LongestWait)
	})
}

func TestInfos_areSentences(t *testing.T) {
	now := time.Unix(1000, 0)
	for want, i := range map[string]fmt.Stringer{
		"waits for quota api.test (retry-after), 3 ahead, expected to end in 1.2 s": WaitInfo{At: now, Limit: "api.test: retry-after", Ahead: 3, ExpectedEnd: now.Add(1200 * time.Millisecond)},
		"waits for a limit":                           WaitInfo{At: now},
		"did not wait":                                WaitInfo{},
		"was rejected by limit own":                   WaitInfo{Limit: "own", Err: throttle.ErrRejected},
		"was not granted: queue: closed":              WaitInfo{Err: queue.ErrClosed},
		"attempt 1 failed: retry now":                 RetryInfo{AttemptInfo: AttemptInfo{Attempt: 1}},
		"attempt 2 failed with status 503: retry now": RetryInfo{AttemptInfo: AttemptInfo{Attempt: 2, Status: 503}},
		"attempt 2 failed: broken: retry in 1.2 s":    RetryInfo{AttemptInfo: AttemptInfo{Attempt: 2, Err: errBroken, RetryAfter: time.Second}, Delay: 1200 * time.Millisecond},
		"attempt 1 failed with status 429: retry when the server permits, in 3 s": RetryInfo{AttemptInfo: AttemptInfo{Attempt: 1, Status: 429, RetryAfter: 3 * time.Second}},
		"gave up: broken (before the first attempt)":                              DoneInfo{Info: Info{StopReason: errBroken}},
		"ended before the first attempt":                                          DoneInfo{},
		"ended after 2 attempts, the last with status 200":                        DoneInfo{Info: Info{Attempts: 2}, Status: 200},
		"gave up: broken (after 1 attempt, the last with status 502)":             DoneInfo{Info: Info{Attempts: 1, StopReason: errBroken}, Err: &GiveUpError{Attempts: []Attempt{{Status: 502}}}},
		"gave up: broken (after 2 attempts, the last with status 503)":            DoneInfo{Info: Info{Attempts: 2, StopReason: errBroken}, Status: 503},
		"waits for limit own":                                                     WaitInfo{At: now, Limit: "own"},
		"waited 2 s for limit own, 1 ahead":                                       WaitInfo{Waited: 2 * time.Second, Limit: "own", Ahead: 1},
		"gave up: rejected: ask again in 499 ms (before the first attempt)":       DoneInfo{Info: Info{StopReason: errors.New("rejected: ask again in 499.396837ms")}},
		"ended after 1 attempt, the last: broken":                                 DoneInfo{Info: Info{Attempts: 1}, Err: errBroken},
	} {
		require.Equal(t, want, i.String())
	}
}

func TestTrace_doneDescribesTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []DoneInfo
		tr := &Transport{
			Base:    newScript(respondAfter(time.Second, 500), errBroken, respondAfter(time.Second, 200)),
			Retry:   threeAttempts(),
			Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "own", Count: 1, Per: 5 * time.Second}),
			Trace:   &Trace{Done: func(_ *http.Request, i DoneInfo) { got = append(got, i) }},
		}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, []DoneInfo{{Info: got[0].Info, Duration: 11 * time.Second, RetryDelay: 9 * time.Second, Status: 200, Response: resp}}, got)
		require.Equal(t, []any{3, 7 * time.Second, 2 * time.Second, "own", nil}, []any{got[0].Attempts, got[0].QueueWait, got[0].BackoffWait, got[0].Limit, got[0].StopReason})

		_, err = tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{NoWait: true})))
		require.Error(t, err)
		require.Equal(t, DoneInfo{Info: Info{StopReason: got[1].StopReason}, Err: err}, got[1])
		require.ErrorIs(t, got[1].StopReason, ErrMaxWait)
	})
}

// TestTrace_aPanicOfWaitStartLeavesTheQueue panics while the request waits.
func TestTrace_aPanicOfWaitStartLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queue.Queue{}
		tr := &Transport{Base: newScript(200), Queue: q, Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "own", Count: 1, Per: 5 * time.Second})}
		_, err := get(t, tr)
		require.NoError(t, err)
		ctx := WithTrace(t.Context(), &Trace{WaitStart: boom[WaitInfo]})
		require.PanicsWithValue(t, "hook", func() { tr.RoundTrip(request(t, "GET", "").WithContext(ctx)) })
		require.Zero(t, q.Snapshot().Waiting)
		start := time.Now()
		_, err = get(t, tr)
		require.NoError(t, err)
		require.Equal(t, 5*time.Second, time.Since(start), "the unit of the request that panicked was not lost")
	})
}

// TestLogTrace_sumsUpSimilarRecords checks that similar records within 10 s are two: the first
// one, and their number.
func TestLogTrace_sumsUpSimilarRecords(t *testing.T) {
	failed := func(host string, status int) func(*Trace) {
		return func(trace *Trace) {
			req := &http.Request{URL: &url.URL{Host: host}}
			trace.Retry(req, RetryInfo{AttemptInfo: AttemptInfo{Attempt: 1, Status: status, RetryAfter: time.Second}})
		}
	}
	held := func(limit string, isHeld bool) func(*Trace) {
		return func(trace *Trace) {
			trace.Hold(quota.HoldInfo{Host: "a", Limit: limit, Held: isHeld, For: time.Minute})
		}
	}
	gaveUp := func(attempts int, reason error) func(*Trace) {
		return func(trace *Trace) {
			trace.Done(&http.Request{URL: &url.URL{Host: "a"}}, DoneInfo{Info: Info{Attempts: attempts, StopReason: reason}})
		}
	}
	const retry = `level=INFO msg="attempt 1 failed with status 503: retry when the server permits, in 1 s`
	for name, tt := range map[string]struct {
		events []func(*Trace) // one each 3 s
		want   []string       // beginnings of the lines
	}{
		"one":             {[]func(*Trace){failed("a", 503)}, []string{retry + `" method=GET host=a attempt=1 status=503 delay=1s`}},
		"two":             {[]func(*Trace){failed("a", 503), failed("a", 503)}, []string{retry + `" method`, retry + `, 1 more within 10 s" method=GET host=a attempt=1 status=503 delay=1s repeated=1`}},
		"five":            {slices.Repeat([]func(*Trace){failed("a", 503)}, 5), []string{retry + `"`, retry + `, 3 more within 10 s"`, retry + `"`}},
		"other hosts":     {[]func(*Trace){failed("a", 503), failed("b", 503)}, []string{retry, retry}},
		"other status":    {[]func(*Trace){failed("a", 503), failed("a", 500)}, []string{retry, "level=INFO"}},
		"other limit":     {[]func(*Trace){held("a: quota", true), held("b: quota", true)}, []string{"level=WARN", "level=WARN"}},
		"end of the hold": {[]func(*Trace){held("a: quota", true), held("a: quota", false)}, []string{"level=WARN", "level=INFO"}},
		"other level":     {[]func(*Trace){gaveUp(1, errBroken), gaveUp(1, context.Canceled)}, []string{"level=WARN", "level=INFO"}},
		"not sent":        {[]func(*Trace){gaveUp(1, errBroken), gaveUp(0, errBroken)}, []string{"level=WARN", "level=WARN"}},
		"other reason":    {[]func(*Trace){gaveUp(1, errBroken), gaveUp(1, ErrMaxWait)}, []string{`level=WARN msg="gave up: broken (`, `level=WARN msg="gave up: broken (after 1 attempt, the last), 1 more within 10 s"`}},
	} {
		synctest.Test(t, func(t *testing.T) {
			trace, lines := logLines()
			for _, event := range tt.events {
				event(trace)
				time.Sleep(3 * time.Second)
			}
			time.Sleep(repeatsWithin)
			synctest.Wait()
			got := lines()
			require.Len(t, got, len(tt.want), name)
			for i, want := range tt.want {
				require.True(t, strings.HasPrefix(got[i], want), "%s: %s", name, got[i])
			}
		})
	}
}

// TestLogTrace_countsRepeatsOfAtMost1000Records has failures of more hosts than that.
func TestLogTrace_countsRepeatsOfAtMost1000Records(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trace, lines := logLines()
		for i := range 2 * (maxRecordKeys + 5) {
			req := &http.Request{URL: &url.URL{Host: strconv.Itoa(i % (maxRecordKeys + 5))}}
			trace.Retry(req, RetryInfo{})
		}
		require.Len(t, lines(), maxRecordKeys+2*5)
		time.Sleep(repeatsWithin)
		synctest.Wait()
		require.Len(t, lines(), maxRecordKeys)
	})
}

// TestLogTrace_aPanicDoesNotEndTheRecords has an error whose text panics.
func TestLogTrace_aPanicDoesNotEndTheRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		trace := LogTrace(slog.New(slog.NewTextHandler(&b, nil)))
		require.PanicsWithValue(t, "boom", func() { trace.Done(request(t, "GET", ""), DoneInfo{Info: Info{StopReason: panickingError{}}}) })
		time.Sleep(repeatsWithin)
		synctest.Wait()
		require.Empty(t, b.String())
		trace.Done(request(t, "GET", ""), DoneInfo{Info: Info{StopReason: errBroken}})
		require.Contains(t, b.String(), "gave up: broken")
	})
}

type panickingError struct{}

func (panickingError) Error() string { panic("boom") }

// Holds that a single 429 may begin are no warnings: short ones that the server did not state.
func TestLogTrace_levelsOfHolds(t *testing.T) {
	for _, tt := range []struct {
		hold quota.HoldInfo
		want string
	}{
		{quota.HoldInfo{Held: true, For: time.Second - 1, Estimated: true}, "level=DEBUG"},
		{quota.HoldInfo{Held: true, For: time.Second, Estimated: true}, "level=WARN"},
		{quota.HoldInfo{Held: true, For: time.Millisecond}, "level=WARN"},
		{quota.HoldInfo{Estimated: true}, "level=INFO"},
	} {
		var b bytes.Buffer
		LogTrace(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))).Hold(tt.hold)
		require.Contains(t, b.String(), tt.want, "%+v", tt.hold)
	}
}

// A panickingHandler panics in the record with a repeated attribute.
type panickingHandler struct{ slog.Handler }

func (h panickingHandler) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "repeated" {
			panic("handler")
		}
		return true
	})
	return nil
}

// LogTrace writes the number of similar records in a goroutine of its own. A handler that panics there does not end the
// program.
func TestLogTrace_aHandlerMayPanicWhenRecordsAreSummedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trace := LogTrace(slog.New(panickingHandler{slog.NewTextHandler(io.Discard, nil)}))
		for range 2 {
			trace.Retry(request(t, "GET", ""), RetryInfo{AttemptInfo: AttemptInfo{Attempt: 1, Status: 503}})
		}
		time.Sleep(2 * repeatsWithin)
		synctest.Wait()
	})
}
