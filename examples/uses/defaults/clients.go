// Package defaults holds clients of APIs without an example of their own. Its tests check what
// docs/with-sdks.md states of the defaults of all SDKs: what they send after a rejection.
package defaults

import (
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/slack-go/slack"
)

// The functions of this file return a client of each SDK that sends its requests through c,
// which is from heed.NewClient. docs/with-sdks.md shows them and explains their options.

func newAnthropic(c *http.Client, key string) anthropic.Client {
	return anthropic.NewClient(
		anthropicoption.WithHTTPClient(c),
		anthropicoption.WithAPIKey(key),
		anthropicoption.WithMaxRetries(0),
	)
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
