package openai

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// clients are the clients that the tests compare.
var clients = map[string]func(http.RoundTripper) openai.Client{
	"heed": func(base http.RoundTripper) openai.Client { return NewClient(base, "key") },
	"default": func(base http.RoundTripper) openai.Client {
		return openai.NewClient(option.WithHTTPClient(&http.Client{Transport: base}), option.WithAPIKey("key"))
	},
}

// TestComplete_insufficientQuotaIsSentOnce checks that a rejection that waiting does not cure
// is not retried, which openai-go does by default.
func TestComplete_insufficientQuotaIsSentOnce(t *testing.T) {
	s := scenario.Scenario{API: func(c *scenario.Counts) func(heedtest.Request) heedtest.Response {
		a := newAPI(c)
		a.unpaid = true
		return a.respond
	}}
	for name, sent := range map[string]int{"heed": 1, "default": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := s.Measure(t.Context(), func(ctx context.Context, base http.RoundTripper) int {
					_, err := Complete(ctx, clients[name](base), "hello")
					var failure *openai.Error
					require.ErrorAs(t, err, &failure)
					require.Equal(t, "insufficient_quota", failure.Code)
					return 1
				})
				require.Equal(t, sent, r.Sent)
			})
		})
	}
}

// TestComplete_isNotPaidForTwice checks that a completion whose response is lost is not
// requested again, which openai-go does by default.
func TestComplete_isNotPaidForTwice(t *testing.T) {
	s := scenario.Scenario{API: func(c *scenario.Counts) func(heedtest.Request) heedtest.Response {
		a, lost := newAPI(c), false
		return func(req heedtest.Request) heedtest.Response {
			resp := a.respond(req)
			if !lost {
				lost, resp.Fault = true, heedtest.Drop
			}
			return resp
		}
	}}
	for name, duplicated := range map[string]int{"heed": 0, "default": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := s.Measure(t.Context(), func(ctx context.Context, base http.RoundTripper) int {
					_, err := Complete(ctx, clients[name](base), "hello")
					require.Equal(t, duplicated == 0, err != nil)
					return 0
				})
				require.Equal(t, duplicated, r.Duplicated)
			})
		})
	}
}
