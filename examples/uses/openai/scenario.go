package openai

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// Scenario gets the completions of 600 prompts of about 50 tokens.
func Scenario() scenario.Scenario {
	prompts := make([]string, 600)
	for i := range prompts {
		prompts[i] = fmt.Sprintf("Summarize article %d. %s", i, strings.Repeat("lorem ", 30))
	}
	completeAll := func(newClient func(http.RoundTripper) openai.Client) scenario.Job {
		return func(ctx context.Context, base http.RoundTripper) (failed int) {
			return CompleteAll(ctx, newClient(base), prompts, func(int, string) {})
		}
	}
	return scenario.Scenario{
		Name:  "openai-go",
		Calls: len(prompts),
		API:   func(c *scenario.Counts) func(heedtest.Request) heedtest.Response { return newAPI(c).respond },
		Default: completeAll(func(base http.RoundTripper) openai.Client {
			return openai.NewClient(option.WithHTTPClient(&http.Client{Transport: base}), option.WithAPIKey("key"))
		}),
		Heed: completeAll(func(base http.RoundTripper) openai.Client { return NewClient(base, "key") }),
	}
}
