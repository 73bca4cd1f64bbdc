package main

import (
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-github/v89/github"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/slack-go/slack"
	"github.com/stripe/stripe-go/v85"
)

// The functions of this file return a client of each SDK that sends its requests through c.
// docs/with-sdks.md shows them and explains their options.

func newGitHub(c *http.Client, token string) (*github.Client, error) {
	return github.NewClient(
		github.WithHTTPClient(c),
		github.WithAuthToken(token),
		github.WithDisableRateLimitCheck(), // heed waits where this check would fail the call
	)
}

func newOpenAI(c *http.Client, key string) openai.Client {
	return openai.NewClient(
		openaioption.WithHTTPClient(c),
		openaioption.WithAPIKey(key),
		openaioption.WithMaxRetries(0),
	)
}

func newAnthropic(c *http.Client, key string) anthropic.Client {
	return anthropic.NewClient(
		anthropicoption.WithHTTPClient(c),
		anthropicoption.WithAPIKey(key),
		anthropicoption.WithMaxRetries(0),
	)
}

func newStripe(c *http.Client, key string) *stripe.Client {
	return stripe.NewClient(key, stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient:        c,
		MaxNetworkRetries: stripe.Int64(0),
	})))
}

func newSlack(c *http.Client, token string) *slack.Client {
	return slack.New(token, slack.OptionHTTPClient(c)) // without OptionRetry
}

// newSTS leaves the retries to the SDK, which signs each attempt anew.
func newSTS(c *http.Client, credentials aws.CredentialsProvider) *sts.Client {
	return sts.NewFromConfig(aws.Config{
		Region:      "us-east-1",
		HTTPClient:  c,
		Credentials: credentials,
	})
}

// newSTSWithoutRetries leaves the retries to heed.
func newSTSWithoutRetries(c *http.Client, credentials aws.CredentialsProvider) *sts.Client {
	return sts.NewFromConfig(aws.Config{
		Region:      "us-east-1",
		HTTPClient:  c,
		Credentials: credentials,
		Retryer:     func() aws.Retryer { return aws.NopRetryer{} },
	})
}
