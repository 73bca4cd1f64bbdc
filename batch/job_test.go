package batch

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
)

// newJob returns a job without items.
func newJob(t *testing.T, o Options) *job {
	j := &job{o: o.withDefaults(), started: time.Now()}
	t.Cleanup(j.begin(t.Context()))
	return j
}

// An item that was passed to a worker and not begun is not processed, so the job is not complete.
func TestJob_isNotCompleteWithoutAnItemThatWasNotBegun(t *testing.T) {
	cause := errors.New("cause")
	for _, stops := range []func(*job){func(j *job) { j.end(cause) }, func(j *job) { j.stopFor(cause) }, func(j *job) { j.abort(cause) }} {
		j := newJob(t, Options{})
		j.complete = true
		require.True(t, j.beginItem())
		stops(j)
		_, err := j.result()
		require.NoError(t, err, "it stopped after the last item")
		require.False(t, j.beginItem())
		_, err = j.result()
		require.ErrorIs(t, err, cause)
		require.Equal(t, 1, j.active)
	}
}

// TestJob_pausesUpToMaxPause checks pauses of MaxPause and of a nanosecond more, and those whose
// end is not known.
func TestJob_pausesUpToMaxPause(t *testing.T) {
	for _, tt := range []struct {
		until, want time.Duration // from now; 0: not known, and no pause
	}{
		{time.Hour, time.Hour}, {time.Hour + 1, 0}, {0, time.Minute}, {1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, Options{MaxPause: time.Hour})
			defer j.cancel(nil)
			start, fault := time.Now(), errors.New("fault")
			var until time.Time
			if tt.until > 0 {
				until = start.Add(tt.until)
			}
			require.Equal(t, tt.want > 0, j.beginPause(until, fault), "%+v", tt)
			require.Equal(t, tt.want > 0, j.pauses.wait(j.stop) == nil, "%+v", tt)
			require.Equal(t, tt.want, time.Since(start))
			if tt.want == 0 {
				require.Equal(t, &PauseError{Until: until, Err: fault}, context.Cause(j.stop))
			}
		})
	}
}

// TestJob_progressDoesNotCountPauses checks the estimate of a job that was paused: the pause is no
// time in which items were processed.
func TestJob_progressDoesNotCountPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, Options{Total: 20})
		defer j.cancel(nil)
		progress := func() Progress { p, _ := j.progress(time.Now()); return p }
		j.pauses.begin(time.Now(), time.Now().Add(time.Minute))
		require.Zero(t, progress().TimeLeft, "not known")
		time.Sleep(80 * time.Second)
		j.report.Done = 10
		p := progress()
		require.Equal(t, 20*time.Second, p.TimeLeft)
		require.Zero(t, p.PausedUntil)
		j.pauses.begin(time.Now(), time.Now().Add(5*time.Second))
		require.Equal(t, 25*time.Second, progress().TimeLeft)
	})
}

// TestJob_progressCountsOnlyWhatThisProcessDid checks the estimate of a job of which an earlier
// process has done and failed a part.
func TestJob_progressCountsOnlyWhatThisProcessDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, Options{Total: 1000})
		defer j.cancel(nil)
		j.report = Report{Done: 500, Resumed: 500, Failed: 100}
		time.Sleep(10 * time.Second)
		p, rate := j.progress(time.Now())
		require.Zero(t, p.TimeLeft)
		require.Zero(t, rate)
		j.report.Done, j.report.Failed, j.failures = 505, 105, 5
		p, rate = j.progress(time.Now())
		require.InDelta(t, 1, rate, 1e-9)
		require.Equal(t, 390*time.Second, p.TimeLeft)
	})
}

func TestProgress_leftOfFewItems(t *testing.T) {
	for _, tt := range []struct {
		p    Progress
		want int
	}{
		{Progress{}, -1}, {Progress{Total: -1}, -1}, {Progress{Total: 1}, 1}, {Progress{Total: 1, Done: 1}, 0}, {Progress{Total: 1, Done: 2}, 0},
		{Progress{Total: 9, Done: 1, Failed: 2, Unknown: 3}, 3},
	} {
		require.Equal(t, tt.want, tt.p.Left(), "%+v", tt.p)
	}
	var e estimator
	require.Zero(t, e.rate(sample{0, time.Second}), "nothing was processed")
	require.Zero(t, e.rate(sample{1, 0}), "in no time")
	require.InDelta(t, .5, e.rate(sample{1, 2 * time.Second}), 0)
}

// A pause repeats the item, which is then marked. A function that sends no request with its
// context has unknown effects, so that only RepeatAlways repeats it.
func TestRun_marksItemsThatAreRepeatedAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var repeated []bool
		keys := map[string]bool{}
		report, err := Run(t.Context(), func(yield func(int) bool) { yield(0) }, func(ctx context.Context, _ int) error {
			item := ItemFrom(ctx)
			repeated, keys[item.IdempotencyKey] = append(repeated, item.Repeated), true
			if len(repeated) < 3 {
				return heed.ErrMaxWait
			}
			return nil
		}, Options{Repeat: RepeatAlways})
		require.NoError(t, err)
		require.Equal(t, 1, report.Repeated)
		require.Equal(t, []bool{false, true, true}, repeated)
		require.Len(t, keys, 1)
		require.Equal(t, 2*time.Minute, report.Paused)
	})
	require.Equal(t, -10, DefaultPriority)
}

// The keys of a checkpoint stay the same with later versions of the package.
func TestJobID_keysStayTheSame(t *testing.T) {
	require.Equal(t, "9d908ecf-b6b2-46de-b8b4-9a7c504e6c88", jobID{}.key(0))
	require.Equal(t, "ea31917f-7650-4ab0-ace5-fe148ae73109", jobID{15: 1}.key(1<<40))
}

func TestPanicError_namesTheItem(t *testing.T) {
	for index, want := range map[int]string{-1: "batch: panic in Options.Progress: v\n\ns", 0: "batch: panic in item 0: v\n\ns", 7: "batch: panic in item 7: v\n\ns"} {
		require.EqualError(t, &PanicError{Index: index, Value: "v", Stack: []byte("s")}, want)
	}
}

// TestWatch_recordsEachKindOnce checks what is recorded before requests are sent, and that a watch
// need not record.
func TestWatch_recordsEachKindOnce(t *testing.T) {
	request := func(key string) *http.Request {
		req, err := http.NewRequest("POST", "http://a.test", nil)
		require.NoError(t, err)
		req.Header.Set("Idempotency-Key", key)
		return req
	}
	var all []sent
	for _, w := range []*watch{{key: "k"}, {key: "k", record: func(s sent) bool { all = append(all, s); return true }}} {
		for _, key := range []string{"k", "k", "other", "other", "k"} {
			w.attemptStart(request(key), heed.AttemptInfo{})
		}
		require.Equal(t, 2, w.inFlight)
	}
	require.Equal(t, []sent{sentKeyed, sentUnsafe}, all)
}

// TestCheckpoint_syncsOncePerInterval checks when a record is written to disk that need not be.
func TestCheckpoint_syncsOncePerInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := openCheckpoint(Options{Checkpoint: t.TempDir() + "/checkpoint"}.withDefaults(), nil)
		require.NoError(t, err)
		defer c.log.Close()
		start := time.Now()
		for _, s := range []struct{ at, synced time.Duration }{{0, 0}, {syncInterval - 1, 0}, {syncInterval, syncInterval}, {2*syncInterval - 1, syncInterval}, {5 * syncInterval, 5 * syncInterval}} {
			time.Sleep(s.at - time.Since(start))
			require.NoError(t, c.done(0, nil))
			require.Equal(t, start.Add(s.synced).UnixNano(), c.syncedAt.Load(), s.at)
		}
	})
}

// A scriptedTransport returns its results one after another, and then 200.
type scriptedTransport struct {
	results []any // a status, or an error
	sent    int
}

func (s *scriptedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	var result any = 200
	if s.sent++; s.sent <= len(s.results) {
		result = s.results[s.sent-1]
	}
	if err, ok := result.(error); ok {
		if errors.Is(err, context.Canceled) { // no response before the request is canceled
			<-req.Context().Done()
		}
		return nil, err
	}
	status := result.(int)
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
}

// submitted returns an Outbox in memory with n requests that are sent by s.
func submitted(t *testing.T, n int, s *scriptedTransport, c OutboxConfig) *Outbox {
	c.Client = &http.Client{Transport: s}
	o, err := OpenOutbox(c)
	require.NoError(t, err)
	for range n {
		req, err := http.NewRequest("POST", "http://a.test", strings.NewReader("body"))
		require.NoError(t, err)
		_, err = o.Submit(req)
		require.NoError(t, err)
	}
	return o
}

// The attempts of OutboxConfig.Backoff are those since a request last left the Outbox.
func TestOutbox_backoffBeginsAnewWithEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scriptedPolicy{delays: []time.Duration{1, 2, 4, 8}}
		s := &scriptedTransport{results: []any{io.ErrUnexpectedEOF, io.ErrUnexpectedEOF, 200, io.ErrUnexpectedEOF, 200, 502}}
		o := submitted(t, 3, s, OutboxConfig{Backoff: p})
		require.NoError(t, o.Drain(t.Context()))
		require.Equal(t, [][2]time.Duration{{1, 0}, {2, 1}, {1, 0}, {1, 0}}, p.calls)
		_, err := o.Close(t.Context())
		require.NoError(t, err)
	})
}

// TestOutbox_statusesAfterAnAttemptInDoubt checks responses to a request that may have been
// processed before.
func TestOutbox_statusesAfterAnAttemptInDoubt(t *testing.T) {
	for _, tt := range []struct {
		results []any
		sent    int
		err     error
	}{
		{[]any{409}, 1, ErrRejected},
		{[]any{io.ErrUnexpectedEOF, 409}, 3, nil}, // the earlier attempt may be in progress
		{[]any{io.ErrUnexpectedEOF, 404}, 2, ErrRejected},
		{[]any{io.ErrUnexpectedEOF, 400}, 2, ErrRejected},
		{[]any{io.ErrUnexpectedEOF, 201}, 2, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []error
			s := &scriptedTransport{results: tt.results}
			o := submitted(t, 1, s, OutboxConfig{Done: func(d Delivery) Action { got = append(got, d.Err); return Leave }})
			require.NoError(t, o.Drain(t.Context()))
			require.Equal(t, tt.sent, s.sent, "%v", tt.results)
			require.Len(t, got, 1)
			require.ErrorIs(t, got[0], tt.err, "%v", tt.results)
			_, err := o.Close(t.Context())
			require.NoError(t, err)
		})
	}
}

// A request that Close cancels does not count as an attempt, and is returned.
func TestOutbox_closeKeepsTheRequestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 0
		o := submitted(t, 1, &scriptedTransport{results: []any{context.Canceled}}, OutboxConfig{MaxAttempts: 1, Done: func(Delivery) Action { left++; return Leave }})
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		unsent, err := o.Close(ctx)
		require.NoError(t, err)
		require.Len(t, unsent, 1)
		require.Zero(t, left)
	})
}

// Close waits for Done and for calls of Submit, also when its context has ended.
func TestOutbox_closeWaitsForItsCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		o := submitted(t, 1, &scriptedTransport{}, OutboxConfig{Done: func(Delivery) Action { time.Sleep(time.Minute); return Leave }})
		synctest.Wait()
		start := time.Now()
		unsent, err := o.Close(ctx)
		require.NoError(t, err)
		require.Empty(t, unsent)
		require.Equal(t, time.Minute, time.Since(start))

		o = submitted(t, 0, &scriptedTransport{}, OutboxConfig{})
		req, err := http.NewRequest("POST", "http://a.test", nil)
		require.NoError(t, err)
		var entries []*entry
		for range 3 { // three calls of Submit that store their requests
			e, err := o.newEntry(req)
			require.NoError(t, err)
			require.NoError(t, o.reserve(e))
			entries = append(entries, e)
		}
		go func() {
			time.Sleep(time.Second)
			o.insert(entries[2])
			time.Sleep(time.Second)
			o.release(entries[1])
			time.Sleep(time.Second)
			o.insert(entries[0])
		}()
		start = time.Now()
		unsent, err = o.Close(ctx)
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.Len(t, unsent, 2)
		require.Equal(t, []uint64{1, 3}, []uint64{unsent[0].ID, unsent[1].ID})
		_, err = o.Submit(req)
		require.ErrorIs(t, err, ErrOutboxClosed)
	})
}

func TestProgress_stringOfOne(t *testing.T) {
	for want, p := range map[string]Progress{
		"0 done": {}, "0 of 1 done": {Total: 1}, "0 done, 1 failed": {Failed: 1}, "0 done, 1 unknown": {Unknown: 1}, "1 of 3 done, 1 failed, 1 unknown": {Done: 1, Total: 3, Failed: 1, Unknown: 1},
	} {
		require.Equal(t, want, p.String())
	}
}

// A checkpoint of another version is not read.
func TestCheckpoint_versions(t *testing.T) {
	for version, valid := range map[string]bool{"0": false, "1": true, "2": false} {
		c := &checkpoint{}
		err := c.applyHeader(recordHeader, []byte(`{"Checkpoint":`+version+`}`))
		require.Equal(t, valid, err == nil, version)
		require.Equal(t, valid, c.hasHeader)
	}
}

// A request need not have a Header, and the size of the requests of a file is counted when it is
// opened.
func TestOutbox_opensWhatItHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := OutboxConfig{Path: t.TempDir() + "/outbox", Client: &http.Client{Transport: &scriptedTransport{results: []any{io.EOF, io.EOF, io.EOF, io.EOF}}}}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		o, err := OpenOutbox(c)
		require.NoError(t, err)
		req, err := http.NewRequest("POST", "http://a.test", strings.NewReader("body"))
		require.NoError(t, err)
		req.Header = nil
		for range 3 {
			req.Body = io.NopCloser(strings.NewReader("body"))
			_, err = o.Submit(req)
			require.NoError(t, err)
		}
		before := o.State()
		require.Positive(t, before.Bytes)
		_, err = o.Close(ctx)
		require.NoError(t, err)
		o, err = OpenOutbox(c)
		require.NoError(t, err)
		require.Equal(t, 3, o.State().Requests)
		require.InDelta(t, before.Bytes, o.State().Bytes, 10)
		unsent, err := o.Close(ctx)
		require.NoError(t, err)
		require.Len(t, unsent, 3)
		require.NotEmpty(t, unsent[0].Request.Header.Get("Idempotency-Key"))
	})
}

// A request that may not begin, because the record takes until the context ends or fails, is not in
// doubt. One that began is.
func TestWatch_whatMayNotBeginIsNotInDoubt(t *testing.T) {
	for _, tt := range []struct{ records, may, repeatable bool }{{true, true, false}, {true, false, true}, {false, true, true}} {
		w := &watch{record: func(sent) bool { return tt.records }, maySend: func() bool { return tt.may }}
		req, err := http.NewRequest("POST", "http://a.test", nil)
		require.NoError(t, err)
		for range 2 { // also a retry of a request that was recorded
			w.waitStart(req, heed.WaitInfo{})
			w.attemptStart(req, heed.AttemptInfo{})
			require.False(t, w.repeatable(), "it is in flight")
			w.attemptDone(req, heed.AttemptInfo{Err: context.Canceled})
			require.Equal(t, tt.repeatable, w.repeatable(), "%+v", tt)
		}
		require.Equal(t, tt.records, w.sentUnsafe(), "the checkpoint states that it would be sent")
	}
}
