package throttlehttp

import (
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
		rejectionOf(throttle.Decision{Policy: "daily", Wait: time.Minute}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
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
		f := rejectionOf(throttle.Decision{Policy: "daily", Wait: time.Minute})
		f.Type = kind
		f.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, want, strings.Contains(w.Body.String(), `"violated-policies": ["daily"]`), kind)
	}
}
