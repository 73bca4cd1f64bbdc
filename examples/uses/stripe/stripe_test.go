package stripe

import (
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// TestAPI_oneEffectPerKey checks the idempotency of the local server.
func TestAPI_oneEffectPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(new(scenario.Counts))
		create := func(email, key string) heedtest.Response {
			return a.respond(heedtest.Request{
				Header: http.Header{"Idempotency-Key": {key}},
				Body:   []byte(url.Values{"email": {email}}.Encode()),
			})
		}
		first := create("a@example.com", "1")
		require.Equal(t, http.StatusOK, first.Status)
		require.Equal(t, http.StatusConflict, create("a@example.com", "1").Status, "in progress")
		time.Sleep(latency)
		again := create("a@example.com", "1")
		require.Equal(t, first.Body, again.Body)
		require.Equal(t, "true", again.Header.Get("Idempotent-Replayed"))
		require.Equal(t, http.StatusBadRequest, create("b@example.com", "1").Status, "other parameters")
		require.NotEqual(t, first.Body, create("b@example.com", "2").Body)
	})
}

// TestAPI_limitBeforeIdempotency checks that a rejected request is not an execution.
func TestAPI_limitBeforeIdempotency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(new(scenario.Counts))
		send := func() heedtest.Response {
			return a.respond(heedtest.Request{Header: http.Header{"Idempotency-Key": {"1"}}, Body: []byte("email=a")})
		}
		require.True(t, a.rate.Take(time.Now(), 25))
		require.Equal(t, http.StatusTooManyRequests, send().Status)
		time.Sleep(time.Second / 25)
		require.Equal(t, http.StatusOK, send().Status)
	})
}
