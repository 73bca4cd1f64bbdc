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

// TestComplete_insufficientQuotaIsSentOnce checks that a rejection that waiting does not cure
// is not retried, which openai-go does by default.
func TestComplete_insufficientQuotaIsSentOnce(t *testing.T) {
	s := scenario.Scenario{API: func(c *scenario.Counts) func(heedtest.Request) heedtest.Response {
		a := newAPI(c)
		a.unpaid = true
		return a.respond
	}}
	for name, tt := range map[string]struct {
		newClient func(http.RoundTripper) openai.Client
		sent      int
	}{
		"heed": {func(base http.RoundTripper) openai.Client { return NewClient(base, "key") }, 1},
		"default": {func(base http.RoundTripper) openai.Client {
			return openai.NewClient(option.WithHTTPClient(&http.Client{Transport: base}), option.WithAPIKey("key"))
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := s.Measure(t.Context(), func(ctx context.Context, base http.RoundTripper) int {
					_, err := Complete(ctx, tt.newClient(base), "hello")
					var failure *openai.Error
					require.ErrorAs(t, err, &failure)
					require.Equal(t, "insufficient_quota", failure.Code)
					return 1
				})
				require.Equal(t, tt.sent, r.Sent)
			})
		})
	}
}
