package poll

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
)

// TestPoller_waitsUpToItsBounds checks waits that are exactly as long as allowed. Interval
// is not bounded by MaxInterval, also after a response with Retry-After.
func TestPoller_waitsUpToItsBounds(t *testing.T) {
	const hour = "3600"
	for name, c := range map[string]struct {
		poller   Poller
		deadline time.Duration
		steps    []response
		polls    int
		err      error
	}{
		"Retry-After of MaxInterval":         {Poller{}, 0, []response{{202, "", []string{"Retry-After", hour}}, {200, "", nil}}, 2, nil},
		"Interval above MaxInterval":         {Poller{Interval: backoff.Constant(2 * time.Hour)}, 0, []response{{202, "", nil}, {200, "", nil}}, 2, nil},
		"any Retry-After":                    {Poller{MaxInterval: -1}, 0, []response{{202, "", []string{"Retry-After", "7200"}}, {200, "", nil}}, 2, nil},
		"a deadline at the time of the poll": {Poller{Interval: backoff.Constant(time.Minute)}, time.Minute, []response{{202, "", nil}, {200, "", nil}}, 1, context.DeadlineExceeded},
		"a deadline after it":                {Poller{Interval: backoff.Constant(time.Minute)}, time.Minute + 1, []response{{202, "", nil}, {200, "", nil}}, 2, nil},
		"a 400":                              {Poller{}, 0, []response{{400, "", nil}}, 1, statusError(400)},
		"a 399":                              {Poller{}, 0, []response{{399, "", nil}}, 1, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &operationServer{steps: map[string][]response{"GET " + ops: c.steps}}
			ctx := t.Context()
			if c.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
				defer cancel()
			}
			c.poller.Client = p.client()
			start := time.Now()
			_, err := c.poller.Resume(ctx, Operation{URL: ops})
			require.ErrorIs(t, err, c.err, name)
			require.Len(t, p.requests, c.polls, name)
			if c.polls == 1 {
				require.Zero(t, time.Since(start), name)
			}
		})
	}
}

// TestPoller_returnsWhatBeganNoOperation checks responses that are returned as they are.
func TestPoller_returnsWhatBeganNoOperation(t *testing.T) {
	req, err := http.NewRequest(http.MethodPost, api+"/", nil)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		status  int
		request *http.Request
		begins  bool
	}{
		"299": {299, req, true}, "300": {300, req, false}, "no request": {202, nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &operationServer{steps: map[string][]response{"GET " + ops: {monitorStatus("Succeeded")}}}
			accepted := newResponse(c.status, "body", "Operation-Location", ops)
			accepted.Request = c.request
			resp, err := (&Poller{Client: p.client()}).Follow(t.Context(), accepted)
			require.NoError(t, err, name)
			require.Equal(t, c.begins, len(p.requests) == 1, name)
			require.Equal(t, c.begins, resp != accepted, name)
		})
	}
}

// TestPoller_closesBodiesOfErrors checks a URL that cannot be polled, and a body that
// cannot be read.
func TestPoller_closesBodiesOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &operationServer{steps: map[string][]response{"POST " + api + "/": {{202, "body", []string{"Location", "ftp://x"}}}}}
		_, err := (&Poller{Client: p.client()}).Follow(t.Context(), p.start(t, "POST", api+"/"))
		require.EqualError(t, err, `poll: operation after 0 polls: poll: the server's URL of the operation has the scheme "ftp": it must be http or https: "body"`)
		require.Zero(t, p.openBodies)

		closed := 0
		broken := errors.New("broken")
		client := &http.Client{Transport: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			resp := newResponse(200, "")
			resp.Request = r
			resp.Body = closeFunc{io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)), func() { closed++ }}
			return resp, nil
		})}
		_, err = (&Poller{Client: client}).Resume(t.Context(), Operation{URL: ops})
		require.ErrorIs(t, err, broken)
		require.ErrorContains(t, err, `after 1 polls: broken: "half"`)
		require.Equal(t, 1, closed)
	})
}

type closeFunc struct {
	io.Reader
	close func()
}

func (c closeFunc) Close() error { c.close(); return nil }

// TestPoller_leavesTheHeaderOfTheRequest checks that the polls have a header of their own,
// without the cookies that a cookie jar adds.
func TestPoller_leavesTheHeaderOfTheRequest(t *testing.T) {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		jar    http.CookieJar
		cookie string
	}{"no jar": {nil, "a=1"}, "a jar": {jar, ""}} {
		synctest.Test(t, func(t *testing.T) {
			p := &operationServer{steps: map[string][]response{
				"POST " + api + "/": {{202, "", []string{"Location", "/1#part"}}},
				"GET " + api + "/1": {{200, "", nil}},
			}}
			accepted := p.start(t, "POST", api+"/", "Cookie", "a=1", "Content-Type", "a/b")
			client := p.client()
			client.Jar = c.jar
			_, err := (&Poller{Client: client}).Follow(t.Context(), accepted)
			require.NoError(t, err, name)
			require.Equal(t, "GET "+api+"/1", p.requests[1], "without the fragment")
			require.Equal(t, c.cookie, p.headers[1].Get("Cookie"), name)
			require.Empty(t, p.headers[1].Get("Content-Type"), name)
			require.Equal(t, "a/b", accepted.Request.Header.Get("Content-Type"), name)
		})
	}
}

// TestPoller_readsAMebibyteOfABody checks the default of MaxBody.
func TestPoller_readsAMebibyteOfABody(t *testing.T) {
	const state = `{"status":"Succeeded"`
	for length, err := range map[int]error{1 << 20: nil, 1<<20 + 1: errNoStatus} {
		synctest.Test(t, func(t *testing.T) {
			body := state + strings.Repeat(" ", length-len(state)-1) + "}"
			p := &operationServer{steps: map[string][]response{"GET " + ops: {{200, body, nil}}}}
			_, got := (&Poller{Client: p.client()}).Resume(t.Context(), Operation{URL: ops, Monitor: true})
			require.ErrorIs(t, got, err)
		})
	}
}

// TestOperation_followsALocationOfA202Only checks that the Location of other responses does
// not move the operation.
func TestOperation_followsALocationOfA202Only(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		creating := `{"properties":{"provisioningState":"Creating"}}`
		p := &operationServer{steps: map[string][]response{
			"PUT " + api + "/vm": {{201, creating, nil}},
			"GET " + api + "/vm": {{200, creating, []string{"Location", "/elsewhere"}}, {202, "", nil}, {200, "a vm", nil}},
		}}
		resp, err := (&Poller{Client: p.client()}).Follow(t.Context(), p.start(t, "PUT", api+"/vm"))
		require.NoError(t, err)
		require.Equal(t, "a vm", text(t, resp))
	})
}

func TestError_timeoutAndText(t *testing.T) {
	for _, c := range []struct {
		err     *Error
		timeout bool
		text    string
	}{
		{&Error{Err: context.DeadlineExceeded}, true, "poll: operation after 0 polls: context deadline exceeded"},
		{&Error{Err: context.Canceled, Operation: Operation{URL: ":", Polls: 2}}, false, "poll: operation after 2 polls: context canceled"},
		{&Error{Err: heed.ErrMaxWait, Operation: Operation{URL: "https://a.test/?k=1", Status: "x"}, Body: "b"}, false, `poll: operation https://a.test/?k=xxxxx has status "x" after 0 polls: ` + heed.ErrMaxWait.Error() + `: "b"`},
		{&Error{Err: noTimeout{}}, false, "poll: operation after 0 polls: no timeout"},
	} {
		require.Equal(t, c.timeout, c.err.Timeout(), c.text)
		require.Equal(t, c.text, c.err.Error())
	}
}

type noTimeout struct{}

func (noTimeout) Error() string { return "no timeout" }
func (noTimeout) Timeout() bool { return false }

// TestPoller_intervalsOfTheServerAndItsOwn checks the ranges of the times between polls: those of
// a Retry-After, and those of the default of Interval. Each range is drawn from often enough to
// come close to its ends.
func TestPoller_intervalsOfTheServerAndItsOwn(t *testing.T) {
	grown := func(poll int) time.Duration {
		d := time.Second
		for range poll - 1 {
			d = min(d*3/2, 30*time.Second)
		}
		return d
	}
	for name, c := range map[string]struct {
		poller      Poller
		header      []string
		from        int                     // the first poll whose time is compared
		middle      func(int) time.Duration // by number of the poll
		least, most float64                 // of middle
		reach       float64                 // some are longer, in parts of middle
	}{
		"Retry-After":                   {Poller{}, []string{"Retry-After", "100"}, 2, func(int) time.Duration { return 100 * time.Second }, 1, 1.1, 1.09},
		"Retry-After below MinInterval": {Poller{}, []string{"Retry-After", "0"}, 2, func(int) time.Duration { return time.Second }, 1, 1.1, 1.09},
		"Retry-After without a minimum": {Poller{MinInterval: -1}, []string{"Retry-After", "0"}, 2, func(int) time.Duration { return 0 }, 0, 0, 0},
		"MinInterval above Retry-After": {Poller{MinInterval: time.Minute}, []string{"Retry-After", "7"}, 2, func(int) time.Duration { return time.Minute }, 1, 1.1, 1.09},
		"the default of Interval":       {Poller{}, nil, 3, grown, 0.8, 1.1, 0.99},
		"MinInterval above Interval":    {Poller{MinInterval: time.Minute}, nil, 2, func(int) time.Duration { return time.Minute }, 1, 1, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			steps := make([]response, 400)
			for i := range steps {
				steps[i] = response{202, "", c.header}
			}
			p := &operationServer{steps: map[string][]response{"GET " + ops: append(steps, response{200, "", nil})}}
			c.poller.Client = p.client()
			polls, last, longest := 0, time.Now(), 0.0
			c.poller.Progress = func(Operation) {
				gap := time.Since(last)
				polls, last = polls+1, time.Now()
				if polls < c.from {
					return
				}
				middle := c.middle(polls - 1)
				require.GreaterOrEqual(t, float64(gap), c.least*float64(middle), "%s, poll %d", name, polls)
				require.LessOrEqual(t, float64(gap), c.most*float64(middle)+1, "%s, poll %d", name, polls)
				longest = max(longest, float64(gap)/float64(max(middle, 1)))
			}
			_, err := c.poller.Resume(t.Context(), Operation{URL: ops})
			require.NoError(t, err, name)
			require.Equal(t, 401, polls, name)
			require.GreaterOrEqual(t, longest, c.reach, name)
		})
	}
}

// TestPoller_resumesAtTheTimeOfTheNextPoll checks Operation.Next, for which MaxInterval and the
// deadline apply as for the waits of Follow.
func TestPoller_resumesAtTheTimeOfTheNextPoll(t *testing.T) {
	for name, c := range map[string]struct {
		next, maxInterval, deadline time.Duration // next 0: not set; deadline 0: none
		waited                      time.Duration
		err                         error
	}{
		"not set":                  {0, 0, 0, 0, nil},
		"in the past":              {-time.Hour, 0, 0, 0, nil},
		"in a nanosecond":          {1, 0, 0, 1, nil},
		"in an hour":               {time.Hour, 0, 0, time.Hour, nil},
		"in more than MaxInterval": {time.Hour + 1, 0, 0, 0, heed.ErrMaxWait},
		"in an own MaxInterval":    {time.Minute, time.Minute, 0, time.Minute, nil},
		"in more than that":        {time.Minute + 1, time.Minute, 0, 0, heed.ErrMaxWait},
		"without a limit":          {99 * time.Hour, -1, 0, 99 * time.Hour, nil},
		"at the deadline":          {time.Minute, 0, time.Minute, 0, context.DeadlineExceeded},
		"before the deadline":      {time.Minute - 1, 0, time.Minute, time.Minute - 1, nil},
		"after both":               {2 * time.Hour, 0, time.Minute, 0, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &operationServer{steps: map[string][]response{"GET " + ops: {{200, "", nil}}}}
			ctx := t.Context()
			if c.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
				defer cancel()
			}
			start := time.Now()
			op := Operation{URL: ops}
			if c.next != 0 {
				op.Next = start.Add(c.next)
			}
			_, err := (&Poller{Client: p.client(), MaxInterval: c.maxInterval}).Resume(ctx, op)
			require.ErrorIs(t, err, c.err, name)
			require.Equal(t, c.waited, time.Since(start), name)
			require.Equal(t, c.err == nil, len(p.requests) == 1, name)
		})
	}
}

// A skippingClock is at the end of each wait immediately.
type skippingClock struct{ now time.Time }

func (c *skippingClock) Now() time.Time { return c.now }
func (c *skippingClock) After(d time.Duration) <-chan time.Time {
	c.now = c.now.Add(d)
	done := make(chan time.Time, 1)
	done <- c.now
	return done
}

// TestPoller_readsItsClock checks that the times of polls and the waits for them are those of Poller.Clock.
func TestPoller_readsItsClock(t *testing.T) {
	begin := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	clock := &skippingClock{begin}
	p := &operationServer{steps: map[string][]response{
		"POST " + api + "/": {{202, "", []string{"Operation-Location", ops, "Retry-After", "60"}}},
		"GET " + ops:        {{200, `{"status":"Running"}`, []string{"Retry-After", "3000"}}, monitorStatus("Succeeded")},
	}}
	var next []time.Time
	poller := &Poller{Client: p.client(), Clock: clock, Progress: func(op Operation) { next = append(next, op.Next) }}
	_, err := poller.Follow(t.Context(), p.start(t, "POST", api+"/"))
	require.NoError(t, err)
	require.Len(t, p.requests, 3)
	require.Len(t, next, 2)
	require.WithinRange(t, next[1], begin.Add(51*time.Minute), begin.Add(51*time.Minute*11/10))
	require.Equal(t, next[1], clock.now)
}

// TestPoller_sendsNothingWithAnEndedContext checks that the cause is returned before anything
// is sent.
func TestPoller_sendsNothingWithAnEndedContext(t *testing.T) {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	p := &operationServer{}
	_, err := (&Poller{Client: p.client()}).Resume(ctx, Operation{URL: ops})
	require.ErrorIs(t, err, gone)
	require.Empty(t, p.requests)
}

// TestPoller_withoutAClient checks that the zero Poller is ready to use.
func TestPoller_withoutAClient(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "result") }))
	defer srv.Close()
	resp, err := new(Poller).Resume(t.Context(), Operation{URL: srv.URL})
	require.NoError(t, err)
	require.Equal(t, "result", text(t, resp))
}

// TestPoller_returnsTheErrorOfABody checks a response that began no operation, and whose body ends
// with an error that its reader returns once.
func TestPoller_returnsTheErrorOfABody(t *testing.T) {
	broken := errors.New("broken")
	req, err := http.NewRequest(http.MethodPost, api+"/", nil)
	require.NoError(t, err)
	for name, limit := range map[string]int64{"within MaxBody": 0, "at MaxBody": 4, "after MaxBody": 2} {
		resp := newResponse(200, "")
		resp.Request = req
		resp.Body = io.NopCloser(io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
		once := iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("half"))) // an error once, after one byte
		got, err := (&Poller{MaxBody: limit}).Follow(t.Context(), resp)
		require.NoError(t, err, name)
		data, err := io.ReadAll(got.Body)
		require.ErrorIs(t, err, broken, name)
		require.Equal(t, "half", string(data), name)

		resp.Body = io.NopCloser(once)
		got, err = (&Poller{MaxBody: limit}).Follow(t.Context(), resp)
		require.NoError(t, err, name)
		data, err = io.ReadAll(got.Body)
		require.ErrorIs(t, err, iotest.ErrTimeout, name)
		require.Equal(t, "h", string(data), name)
	}
	p := &operationServer{steps: map[string][]response{"GET " + ops: {monitorStatus("Succeeded")}}}
	_, err = (&Poller{Client: p.client(), MaxBody: 1}).Resume(t.Context(), Operation{URL: ops, Monitor: true})
	require.ErrorIs(t, err, errNoStatus, "one byte states no status")
}

// An Operation that a later version has stored is not followed, and not lost.
func TestPoller_resumeRejectsLaterVersions(t *testing.T) {
	op := Operation{Version: 2, URL: "https://a.test/", Polls: 3}
	_, err := new(Poller).Resume(t.Context(), op)
	require.EqualError(t, err, "poll: operation https://a.test/ after 3 polls: poll: the operation has version 2 of the format: this program knows 1")
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, op, e.Operation)
}
