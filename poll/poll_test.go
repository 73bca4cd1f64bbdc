package poll

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/stretchr/testify/require"
)

// An operationServer responds by "METHOD URL" with one step after the other, and repeats the
// last. It records the requests and their headers.
type operationServer struct {
	steps      map[string][]response
	requests   []string
	headers    []http.Header
	openBodies int
}

func (p *operationServer) RoundTrip(r *http.Request) (*http.Response, error) {
	what := r.Method + " " + r.URL.String()
	p.requests = append(p.requests, what)
	p.headers = append(p.headers, r.Header)
	if r.Body != nil {
		r.Body.Close()
	}
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	steps := p.steps[what]
	if len(steps) == 0 {
		return nil, fmt.Errorf("nothing at %s", what)
	}
	if len(steps) > 1 {
		p.steps[what] = steps[1:]
	}
	resp := newResponse(steps[0].status, steps[0].body, steps[0].headers...)
	resp.Request = r
	if resp.Body != http.NoBody {
		p.openBodies++
		resp.Body = trackedBody{resp.Body, p}
	}
	return resp, nil
}

type trackedBody struct {
	io.ReadCloser
	p *operationServer
}

func (c trackedBody) Close() error { c.p.openBodies--; return c.ReadCloser.Close() }

type response struct {
	status  int
	body    string
	headers []string // name, value
}

// newResponse returns a response; headers are given as name, value.
func newResponse(status int, body string, headers ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, ContentLength: int64(len(body))}
	for i := 0; i < len(headers); i += 2 {
		resp.Header.Add(headers[i], headers[i+1])
	}
	if body != "" {
		resp.Body = io.NopCloser(strings.NewReader(body))
	}
	return resp
}

// text reads and closes the body of resp.
func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(b)
}

// roundTripFunc is an http.RoundTripper made of a function.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

const (
	api = "https://api.test"
	ops = "https://ops.api.test/1"
)

// start sends the request that begins an operation.
func (p *operationServer) start(t *testing.T, method, url string, headers ...string) *http.Response {
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("{}"))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := p.client().Do(req)
	require.NoError(t, err)
	return resp
}

func (p *operationServer) client() *http.Client {
	return heed.NewClient(&heed.Transport{Base: p, Retry: &heed.RetryPolicy{MaxAttempts: 1}})
}

func monitorStatus(status string) response { return response{200, `{"status":"` + status + `"}`, nil} }

func TestPoller_returnsTheResult(t *testing.T) {
	monitor := []string{"Operation-Location", "/ops/1", "Retry-After", "5"}
	states := []response{monitorStatus("NotStarted"), monitorStatus("Running"), monitorStatus("Succeeded")}
	for name, tt := range map[string]struct {
		method string
		steps  map[string][]response
		asked  string // after the request itself
		want   string
	}{
		"PUT, then the resource": {"PUT", map[string][]response{
			"PUT " + api + "/vm":    {{202, "", monitor}},
			"GET " + api + "/ops/1": states,
			"GET " + api + "/vm":    {{200, "a vm", nil}},
		}, "/ops/1 /ops/1 /ops/1 /vm", "a vm"},
		"PATCH, by Azure-AsyncOperation": {"PATCH", map[string][]response{
			"PATCH " + api + "/vm":  {{200, `{"properties":{"provisioningState":"Updating"}}`, []string{"Azure-AsyncOperation", api + "/ops/1"}}},
			"GET " + api + "/ops/1": states,
			"GET " + api + "/vm":    {{200, "a vm", nil}},
		}, "/ops/1 /ops/1 /ops/1 /vm", "a vm"},
		"POST, then Location": {"POST", map[string][]response{
			"POST " + api + "/vm":    {{202, "", append(monitor, "Location", "result")}},
			"GET " + api + "/ops/1":  states,
			"GET " + api + "/result": {{200, "made", nil}},
		}, "/ops/1 /ops/1 /ops/1 /result", "made"},
		"POST, and the monitor has it all": {"POST", map[string][]response{
			"POST " + api + "/vm":   {{202, "", monitor}},
			"GET " + api + "/ops/1": {monitorStatus("Running"), {200, `{"status":"succeeded","result":7}`, nil}},
		}, "/ops/1 /ops/1", `{"status":"succeeded","result":7}`},
		"POST, and the monitor says where": {"POST", map[string][]response{
			"POST " + api + "/vm":    {{202, "", monitor}},
			"GET " + api + "/ops/1":  {{202, "", nil}, {200, `{"status":"Succeeded","resourceLocation":"/made/9"}`, nil}},
			"GET " + api + "/made/9": {{200, "nine", nil}},
		}, "/ops/1 /ops/1 /made/9", "nine"},
		"a monitor that redirects to the result": {"POST", map[string][]response{
			"POST " + api + "/vm":   {{202, "", monitor}},
			"GET " + api + "/ops/1": {monitorStatus("Running"), {303, "", []string{"Location", "/made"}}},
			"GET " + api + "/made":  {{200, "redirected", nil}},
		}, "/ops/1 /ops/1 /made", "redirected"},
		"DELETE, by Location that moves": {"DELETE", map[string][]response{
			"DELETE " + api + "/vm": {{202, "", []string{"Location", "/l/1"}}},
			"GET " + api + "/l/1":   {{202, "", []string{"Location", "2"}}},
			"GET " + api + "/l/2":   {{202, "", nil}, {204, "", nil}},
		}, "/l/1 /l/2 /l/2", ""},
		"PUT without a header": {"PUT", map[string][]response{
			"PUT " + api + "/vm": {{201, `{"properties":{"provisioningState":"Creating"}}`, nil}},
			"GET " + api + "/vm": {{200, `{"properties":{"provisioningState":"Creating"}}`, nil}, {200, `{"properties":{"provisioningState":"Succeeded"}}`, nil}},
		}, "/vm /vm", `{"properties":{"provisioningState":"Succeeded"}}`},
		"the server is busy meanwhile": {"POST", map[string][]response{
			"POST " + api + "/vm":   {{202, "", monitor}},
			"GET " + api + "/ops/1": {{429, "", []string{"Retry-After", "7"}}, monitorStatus("Succeeded")},
		}, "/ops/1 /ops/1", `{"status":"Succeeded"}`},
		"no operation":          {"POST", map[string][]response{"POST " + api + "/vm": {{201, "made", []string{"Location", "/vm/1"}}}}, "", "made"},
		"a failure, not one":    {"PUT", map[string][]response{"PUT " + api + "/vm": {{400, "no", monitor}}}, "", "no"},
		"PUT that is done":      {"PUT", map[string][]response{"PUT " + api + "/vm": {{200, `{"properties":{"provisioningState":"Succeeded"}}`, nil}}}, "", `{"properties":{"provisioningState":"Succeeded"}}`},
		"202 that says nothing": {"POST", map[string][]response{"POST " + api + "/vm": {{202, "later", nil}}}, "", "later"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &operationServer{steps: tt.steps}
			resp, err := (&Poller{Client: p.client()}).Follow(t.Context(), p.start(t, tt.method, api+"/vm"))
			require.NoError(t, err, name)
			require.Equal(t, tt.want, text(t, resp), name)
			asked := strings.ReplaceAll(strings.Join(p.requests[1:], " "), "GET "+api, "")
			require.Equal(t, tt.asked, asked, name)
			require.Zero(t, p.openBodies, "%s: bodies that were not closed", name)
		})
	}
}

func TestPoller_obeysRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &operationServer{steps: map[string][]response{
			"POST " + api + "/": {{202, "", []string{"Operation-Location", ops, "Retry-After", "10"}}},
			"GET " + ops: {
				{200, `{"status":"Running","percentComplete":40}`, []string{"Retry-After", "60"}},
				{200, `{"status":"Running"}`, []string{"Retry-After", "0"}}, // too soon
				{200, `{"status":"Running"}`, nil},
				{200, `{"status":"Running"}`, nil},
				monitorStatus("Succeeded"),
			},
		}}
		start := time.Now()
		var at []time.Duration
		var progress []string
		poller := &Poller{Client: p.client(), Progress: func(op Operation) {
			at = append(at, time.Since(start))
			progress = append(progress, fmt.Sprint(op.Polls, op.Status, op.Percent))
		}}
		_, err := poller.Follow(t.Context(), p.start(t, "POST", api+"/"))
		require.NoError(t, err)
		require.Equal(t, "[1Running40 2Running0 3Running0 4Running0 5Succeeded0]", fmt.Sprint(progress))
		for i, want := range []time.Duration{10 * time.Second, 60 * time.Second, time.Second, time.Second, 1500 * time.Millisecond} {
			gap := at[i]
			if i > 0 {
				gap -= at[i-1]
			}
			require.GreaterOrEqual(t, gap, want*9/10, i)
			require.LessOrEqual(t, gap, want*11/10, i)
			if i < 3 {
				require.GreaterOrEqual(t, gap, want, "never early")
			}
		}
	})
}

// TestPoller_stopsAndResumes: a pause that passes the deadline is not slept, and what is
// needed to go on survives as JSON.
func TestPoller_stopsAndResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &operationServer{steps: map[string][]response{
			"PUT " + api + "/vm?sig=secret": {{202, "", []string{"Operation-Location", ops + "?sig=secret", "Retry-After", "30"}}},
			"GET " + ops + "?sig=secret":    {{200, `{"status":"Running"}`, []string{"Retry-After", "30"}}, monitorStatus("Succeeded")},
			"GET " + api + "/vm?sig=secret": {{200, "a vm", nil}},
		}}
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		_, err := (&Poller{Client: p.client()}).Follow(ctx, p.start(t, "PUT", api+"/vm?sig=secret"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.True(t, e.Timeout())
		require.Less(t, time.Since(start), 34*time.Second, "it did not sleep until the deadline")
		require.NotContains(t, err.Error(), "secret")
		require.ErrorContains(t, err, `https://ops.api.test/1?sig=xxxxx has status "Running" after 1 polls: context deadline exceeded`)

		saved, err := json.Marshal(e.Operation)
		require.NoError(t, err)
		var op Operation
		require.NoError(t, json.Unmarshal(saved, &op))
		resp, err := (&Poller{Client: p.client()}).Resume(t.Context(), op)
		require.NoError(t, err)
		require.Equal(t, "a vm", text(t, resp))
		require.GreaterOrEqual(t, time.Since(start), time.Minute, "nor did it look too early after that")
		require.Len(t, p.requests, 4)
	})
}

func TestPoller_resumesByURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &operationServer{steps: map[string][]response{"GET " + ops: {{202, "", nil}, {200, "result", nil}}}}
		poller := &Poller{Client: p.client(), Header: http.Header{"Authorization": {"Bearer x"}}}
		resp, err := poller.Resume(t.Context(), Operation{URL: ops})
		require.NoError(t, err)
		require.Equal(t, "result", text(t, resp))
		require.Equal(t, "Bearer x", p.headers[1].Get("Authorization"))
	})
}

func TestPoller_reportsFailures(t *testing.T) {
	gone := errors.New("gone home")
	for name, tt := range map[string]struct {
		look response
		poll Poller
		err  error
		text string
		at   time.Duration
	}{
		"failed":                   {response{200, `{"status":"Failed","error":{"code":"Quota"}}`, nil}, Poller{}, ErrFailed, `has status "Failed" after 1 polls: poll: operation failed: "{\"status\":\"Failed\"`, time.Second},
		"cancelled":                {monitorStatus("Canceled"), Poller{}, ErrFailed, "Canceled", time.Second},
		"not found":                {response{404, "who?", nil}, Poller{}, statusError(404), `server responded 404 Not Found: "who?"`, time.Second},
		"not found, later":         {response{404, "who?", []string{"Retry-After", "5"}}, Poller{}, statusError(404), "404 Not Found", time.Second},
		"a failure":                {response{500, "oops", nil}, Poller{}, statusError(500), "500 Internal Server Error", time.Second},
		"no status":                {response{200, "{}", nil}, Poller{}, errNoStatus, "set Poller.ParseStatus", time.Second},
		"a long status":            {response{200, `{"status":"` + strings.Repeat("x", 100) + `"}`, nil}, Poller{MaxBody: 50}, errNoStatus, "Poller.MaxBody", time.Second},
		"a wait too long":          {response{200, `{"status":"Running"}`, []string{"Retry-After", "3601"}}, Poller{}, heed.ErrMaxWait, "Running", time.Second},
		"a wait above MaxInterval": {response{200, `{"status":"Running"}`, []string{"Retry-After", "20"}}, Poller{MaxInterval: 19 * time.Second, Interval: backoff.Constant(2 * time.Second)}, heed.ErrMaxWait, "Running", 2 * time.Second},
		"cancelled caller":         {monitorStatus("Running"), Poller{}, gone, "gone home", 10 * time.Second},
		"where to":                 {response{200, `{"status":"Succeeded","resourceLocation":"file:///etc/passwd"}`, nil}, Poller{}, nil, `scheme "file"`, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &operationServer{steps: map[string][]response{
				"POST " + api + "/": {{202, "", []string{"Operation-Location", ops}}},
				"GET " + ops:        {tt.look},
			}}
			start := time.Now()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Second, func() { cancel(gone) })
			tt.poll.Client = p.client()
			_, err := tt.poll.Follow(ctx, p.start(t, "POST", api+"/"))
			var e *Error
			require.ErrorAs(t, err, &e, name)
			if tt.err != nil {
				require.ErrorIs(t, err, tt.err, name)
			}
			require.ErrorContains(t, err, tt.text, name)
			require.InDelta(t, tt.at, time.Since(start), float64(time.Second/5), name)
			require.Equal(t, ops, e.Operation.URL)
			require.Zero(t, p.openBodies, name)
		})
	}
}

// The error of a context that ends while a poll is in flight is its cause, whatever the
// round tripper returns.
func TestPoller_returnsTheCauseOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, down := errors.New("gone"), errors.New("connection lost")
		ctx, cancel := context.WithCancelCause(t.Context())
		p := &operationServer{steps: map[string][]response{"POST " + api + "/": {{202, "", []string{"Operation-Location", ops}}}}}
		first := p.start(t, "POST", api+"/")
		client := &http.Client{Transport: roundTripFunc(func(*http.Request) (*http.Response, error) { cancel(gone); return nil, down })}
		_, err := (&Poller{Client: client}).Follow(ctx, first)
		require.ErrorIs(t, err, gone)
		require.NotErrorIs(t, err, down)
	})
}

// TestPoller_sendsCredentialsToTheOriginOnly: where the server sends us does not decide who gets
// to see our credentials.
func TestPoller_sendsCredentialsToTheOriginOnly(t *testing.T) {
	for target, sent := range map[string]bool{
		"https://api.test/ops":         true,
		"https://API.test:8443/ops":    true,
		"https://ops.api.test/ops":     true,
		"https://evil.test/ops":        false,
		"https://evilapi.test/ops":     false,
		"https://api.test.evil/ops":    false,
		"http://api.test/ops":          false,
		"//evil.test/ops":              false,
		"https://api.test@evil.test/1": false,
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &operationServer{steps: map[string][]response{"PUT " + api + "/vm": {{202, "", []string{"Operation-Location", target}}}, "GET " + api + "/vm": {{200, "", nil}}}}
			resp := p.start(t, "PUT", api+"/vm", "Authorization", "Bearer x", "X-Api-Key", "k", "Accept", "text/plain", "Content-Type", "a/b", "Idempotency-Key", "i")
			u, err := resp.Request.URL.Parse(target)
			require.NoError(t, err)
			p.steps["GET "+u.String()] = []response{monitorStatus("Succeeded")}
			_, err = (&Poller{Client: p.client()}).Follow(t.Context(), resp)
			require.NoError(t, err, target)
			require.Len(t, p.headers, 3)
			require.Equal(t, sent, p.headers[1].Get("X-Api-Key") == "k", target)
			require.Equal(t, sent, p.headers[1].Get("Authorization") == "Bearer x", target)
			require.Equal(t, "Bearer x", p.headers[2].Get("Authorization"), "the resource is at home")
			for _, h := range p.headers[1:] {
				require.Equal(t, "text/plain", h.Get("Accept"))
				require.Empty(t, h.Get("Content-Type")+h.Get("Idempotency-Key"))
			}
		})
	}
}

// A redirect to another host loses the credential, as with any http.Client.
func TestPoller_redirectsCarryNoCredentialsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &operationServer{steps: map[string][]response{
			"POST " + api + "/":      {{202, "", []string{"Location", "/1"}}},
			"GET " + api + "/1":      {{302, "", []string{"Location", "https://evil.test/"}}},
			"GET https://evil.test/": {{200, "result", nil}},
		}}
		_, err := (&Poller{Client: p.client()}).Follow(t.Context(), p.start(t, "POST", api+"/", "Authorization", "Bearer x"))
		require.NoError(t, err)
		require.Equal(t, "Bearer x", p.headers[1].Get("Authorization"))
		require.Empty(t, p.headers[2].Get("Authorization"))
	})
}

// A result of any size is handed out as it comes.
func TestPoller_resultMayBeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := bytes.Repeat([]byte("0123456789"), 1000)
		p := &operationServer{steps: map[string][]response{
			"POST " + api + "/": {{202, "", []string{"Location", ops}}},
			"GET " + ops:        {{200, string(long), nil}},
		}}
		resp, err := (&Poller{Client: p.client(), MaxBody: 16}).Follow(t.Context(), p.start(t, "POST", api+"/"))
		require.NoError(t, err)
		require.Equal(t, string(long), text(t, resp))
	})
}
