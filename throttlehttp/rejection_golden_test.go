package throttlehttp_test

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// TestRejection_body compares complete bodies with the expected ones.
func TestRejection_body(t *testing.T) {
	m := &throttlehttp.Middleware{Limiter: fixedDecision{d: throttle.Decision{Policy: "inner", Wait: 5 * time.Second, Limit: 9}}}
	for accept, want := range map[string]string{
		"text/html": `<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Too many requests</title></head>
<body>
<h1>Too many requests</h1>
<p>Try again in 5 seconds.</p>
</body>
</html>
`,
		"text/plain": "Too many requests. Try again in 5 seconds.\n",
		"application/json": `{
  "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
  "title": "Too many requests",
  "status": 429,
  "detail": "Try again in 5 seconds.",
  "retry_after": 5
}
`,
	} {
		body, err := io.ReadAll(rejection(m, http.MethodGet, accept).Body)
		require.NoError(t, err)
		require.Equal(t, want, string(body))
	}
	never := &throttlehttp.Middleware{Limiter: throttle.DenyAll}
	body, err := io.ReadAll(rejection(never, http.MethodGet, "application/json").Body)
	require.NoError(t, err)
	require.Equal(t, `{
  "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
  "title": "Too many requests",
  "status": 429,
  "detail": "This request cannot be taken at any time."
}
`, string(body))
}
