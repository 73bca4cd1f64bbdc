package throttlehttp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// TestRejection_namesPoliciesOfTheHeadersOnly checks that problem details name the limit
// that rejected the request only if the headers name it, too.
func TestRejection_namesPoliciesOfTheHeadersOnly(t *testing.T) {
	for policy, want := range map[string][]string{
		`"daily";q=5;w=86400`:          {"daily"},
		`"other";q=5, "daily";q=5;w=9`: {"daily"},
		`"other";q=5`:                  nil,
		"":                             nil,
	} {
		w := httptest.NewRecorder()
		if policy != "" {
			w.Header().Set("RateLimit-Policy", policy)
		}
		rejectionOf(&throttle.Decision{Policy: "daily", Wait: time.Minute}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		var r headers.Reader
		rep := r.Parse("", w.Code, w.Header(), time.Now())
		r.ReadBody(w.Code, w.Header(), w.Body.Bytes(), &rep)
		require.Equal(t, want, rep.Violated, policy)
		require.True(t, rep.Throttled)
	}
}

// TestRejection_namesPoliciesInTheTypesThatDefineIt checks that problem details have the member
// violated-policies if their type is one of the three of the draft, which all define it in
// version 11. (Issue 14: before, only that of an exceeded quota had it.)
func TestRejection_namesPoliciesInTheTypesThatDefineIt(t *testing.T) {
	for kind, want := range map[string]bool{
		QuotaExceeded: true, ReducedCapacity: true, AbnormalUsage: true, "": false, "https://example.com/problems/other": false,
	} {
		w := httptest.NewRecorder()
		w.Header().Set("RateLimit-Policy", `"daily";q=5`)
		f := rejectionOf(&throttle.Decision{Policy: "daily", Wait: time.Minute})
		f.Type = kind
		f.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, want, strings.Contains(w.Body.String(), `"violated-policies": ["daily"]`), kind)
	}
}

// TestRejection_quotesPolicies checks that names with characters that JSON or structured fields escape
// are found in the headers and are valid JSON.
func TestRejection_quotesPolicies(t *testing.T) {
	for _, name := range []string{`a"b`, `a\b`, `"`, "a<b>&c", "a b", "é"} {
		m := &Middleware{Dialect: headers.Draft10, Limiter: decided{Policy: name, Limit: 5, Wait: time.Minute}}
		w := httptest.NewRecorder()
		m.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		var got struct {
			Violated []string `json:"violated-policies"`
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), name)
		require.Equal(t, []string{policyName(name)}, got.Violated)
	}
}

// decided is a limiter that always makes the same decision.
type decided throttle.Decision

func (d decided) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision(d), nil
}
func (decided) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}
func (decided) Traits() throttle.Traits                                                      { return throttle.Traits{NonBlocking: true} }

// A nestedWriter writes another rejection while the body of the first is written.
type nestedWriter struct {
	*httptest.ResponseRecorder
	during func()
}

func (w nestedWriter) Write(p []byte) (int, error) {
	w.during()
	return w.ResponseRecorder.Write(p)
}

// TestRejection_bodiesDoNotShareABuffer checks that a rejection that is written while another one is
// does not change its body.
func TestRejection_bodiesDoNotShareABuffer(t *testing.T) {
	respond := func(kind string, during func()) string {
		w := nestedWriter{httptest.NewRecorder(), during}
		Rejection{Type: kind}.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		return w.Body.String()
	}
	want := respond(QuotaExceeded, func() {})
	got := respond(QuotaExceeded, func() {
		for range 10 {
			respond(AbnormalUsage, func() {})
		}
	})
	require.Equal(t, want, got)
}
