package heed

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/stretchr/testify/require"
)

// A scenario is one behaviour that a client with retries should have. The scenarios are
// numbered by a list of 158, which was collected from the test suites of four other
// libraries and from measurements of net/http and of non-compliant servers.
type scenario struct {
	number  int
	summary string             // short description
	run     func(t *testing.T) // runs in a synctest bubble unless real is set; nil if reason is set
	real    bool               // run uses real sockets, so it does not run in a bubble
	reason  string             // why it is not run as listed, and what replaces it
}

var scenarios = slices.Concat(responseScenarios, errorScenarios, attemptScenarios, waitScenarios, bodyScenarios, redirectScenarios, contextScenarios, drainScenarios, streamScenarios, contractScenarios, limitScenarios)

func TestScenarios_areComplete(t *testing.T) {
	ran := 0
	for i, s := range scenarios {
		require.Equal(t, i+1, s.number)
		if s.run != nil {
			ran++
		}
	}
	require.Len(t, scenarios, 158)
	require.GreaterOrEqual(t, ran, 150)
}

// TestScenario runs each scenario under its number. With -v it logs a list of all
// scenarios with their results.
func TestScenario(t *testing.T) {
	var list strings.Builder
	results := map[string]int{}
	for _, s := range scenarios {
		result := "FAIL"
		if t.Run(fmt.Sprintf("%03d", s.number), s.test) {
			result = s.result()
		}
		results[result]++
		fmt.Fprintf(&list, "\n%03d  %-6s  %s", s.number, result, s.summary)
		if s.run == nil {
			list.WriteString(": " + s.reason)
		}
	}
	t.Logf("%s\n%d scenarios: %d run as they stand and are kept, %d mapped to something else or out, %d failed",
		list.String(), len(scenarios), results["ok"], results["mapped"], results["FAIL"])
}

func (s scenario) result() string {
	if s.run == nil {
		return "mapped"
	}
	return "ok"
}

func (s scenario) test(t *testing.T) {
	switch {
	case s.run == nil:
		require.NotEmpty(t, s.reason)
	case s.real:
		s.run(t)
	default:
		synctest.Test(t, s.run)
	}
}

// A scriptServer executes one step per request and repeats the last one. A step is a
// status, an error, a response, or a function.
type scriptServer struct {
	steps []any
	start time.Time

	mu     sync.Mutex
	got    []received
	opened int // response bodies
	closed int
}

// received is a request as seen by the server.
type received struct {
	at     time.Duration
	method string
	body   string
	length int64
	header http.Header
}

type response struct {
	status  int
	body    string
	headers []string // name, value
}

func newScript(steps ...any) *scriptServer { return &scriptServer{steps: steps, start: time.Now()} }

// RoundTrip implements http.RoundTripper.
func (s *scriptServer) RoundTrip(r *http.Request) (*http.Response, error) {
	got := received{at: time.Since(s.start), method: r.Method, length: r.ContentLength, header: r.Header.Clone()}
	if r.Body != nil {
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		got.body = string(b)
	}
	s.mu.Lock()
	s.got = append(s.got, got)
	n := len(s.got)
	s.mu.Unlock()
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	resp, err := s.step(r, n)
	if resp != nil {
		resp.Request = r
		if resp.Body != http.NoBody {
			s.mu.Lock()
			s.opened++
			s.mu.Unlock()
			resp.Body = &countedBody{ReadCloser: resp.Body, s: s}
		}
	}
	return resp, err
}

func (s *scriptServer) step(r *http.Request, n int) (*http.Response, error) {
	switch step := s.steps[min(n, len(s.steps))-1].(type) {
	case int:
		return newResponse(step, fmt.Sprint("answer ", n)), nil
	case response:
		return newResponse(step.status, step.body, step.headers...), nil
	case error:
		return nil, step
	case func(*http.Request) (*http.Response, error):
		return step(r)
	default:
		panic(fmt.Sprintf("a step of type %T", step))
	}
}

// sent returns the number of requests that the server got.
func (s *scriptServer) sent() int { return len(s.got) }

// gaps returns the times between requests.
func (s *scriptServer) gaps() (gaps []time.Duration) {
	for i := range s.got[1:] {
		gaps = append(gaps, s.got[i+1].at-s.got[i].at)
	}
	return gaps
}

// countedBody counts how often a response body is closed.
type countedBody struct {
	io.ReadCloser
	s    *scriptServer
	once sync.Once
}

func (c *countedBody) Close() error {
	c.once.Do(func() {
		c.s.mu.Lock()
		c.s.closed++
		c.s.mu.Unlock()
	})
	return c.ReadCloser.Close()
}

// opaque is a body of a type that heed does not know. It counts how often it is closed.
// Without a Reader it is empty.
type opaque struct {
	io.Reader
	closed int
}

func (o *opaque) Read(p []byte) (int, error) {
	if o.Reader == nil {
		return 0, io.EOF
	}
	return o.Reader.Read(p)
}

func (o *opaque) Close() error { o.closed++; return nil }

// threeAttempts returns a RetryPolicy with three attempts and a constant delay of one
// second.
func threeAttempts() *RetryPolicy {
	return &RetryPolicy{MaxAttempts: 3, Backoff: backoff.Constant(time.Second)}
}

// request returns a request whose context ends with the test.
func request(t *testing.T, method, body string) *http.Request {
	t.Helper()
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://api.test/items", r)
	require.NoError(t, err)
	return req
}

// send sends a request to s with the policy threeAttempts.
func send(t *testing.T, s *scriptServer, method string) (*http.Response, error) {
	t.Helper()
	return (&Transport{Base: s, Retry: threeAttempts()}).RoundTrip(request(t, method, ""))
}

// expectStatus sends a GET and checks the status and the number of attempts.
func expectStatus(status, sent int, steps ...any) func(*testing.T) {
	return expectStatusOf("GET", status, sent, steps...)
}

func expectStatusOf(method string, status, sent int, steps ...any) func(*testing.T) {
	return func(t *testing.T) {
		s := newScript(steps...)
		resp, err := send(t, s, method)
		require.NoError(t, err)
		require.Equal(t, status, resp.StatusCode)
		require.Equal(t, sent, s.sent())
		if resp.Body != http.NoBody {
			require.Equal(t, fmt.Sprint("answer ", sent), text(t, resp))
		}
		require.Equal(t, s.opened, s.closed)
	}
}

// expectError sends a GET and checks that it fails with err after that number of
// attempts.
func expectError(err error, sent int, steps ...any) func(*testing.T) {
	return func(t *testing.T) {
		s := newScript(steps...)
		_, got := send(t, s, "GET")
		require.ErrorIs(t, got, err)
		require.Equal(t, sent, s.sent())
	}
}
