package github

import (
	"context"
	"net/http"

	"github.com/google/go-github/v89/github"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// Scenario labels 1,000 issues.
func Scenario() scenario.Scenario {
	const issues = 1000
	label := func(newClient func(http.RoundTripper) (*github.Client, error)) scenario.Job {
		return func(ctx context.Context, base http.RoundTripper) (failed int) {
			client, err := newClient(base)
			if err != nil {
				return issues
			}
			labeled, _ := Label(ctx, client, "octo-org", "octo-repo", "triage")
			return issues - labeled
		}
	}
	return scenario.Scenario{
		Name:  "go-github",
		Calls: issues,
		API: func(c *scenario.Counts) func(heedtest.Request) heedtest.Response {
			return newAPI(c, issues).respond
		},
		Default: label(func(base http.RoundTripper) (*github.Client, error) {
			return github.NewClient(github.WithHTTPClient(&http.Client{Transport: base}), github.WithAuthToken("token"))
		}),
		Heed: label(func(base http.RoundTripper) (*github.Client, error) { return NewClient(base, "token") }),
	}
}
