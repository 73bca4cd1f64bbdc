package defaults

import (
	"context"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	gogithub "github.com/google/go-github/v89/github"
	gopenai "github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	gostripe "github.com/stripe/stripe-go/v85"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/examples/uses/github"
	"github.com/heed-go/heed/examples/uses/openai"
	usess3 "github.com/heed-go/heed/examples/uses/s3"
	"github.com/heed-go/heed/examples/uses/stripe"
	"github.com/heed-go/heed/heedtest"
)

// A testCase is one call of an SDK, how the API rejects it, and the response to it.
type testCase struct {
	sdk       string
	rejection heedtest.Response
	success   heedtest.Response

	// retries states whether the SDK repeats the call after the rejection by default.
	retries bool

	// call makes the call through base. shipped means that the SDK keeps the settings that it
	// is shipped with; otherwise it has those of docs/with-sdks.md and heed beneath.
	call func(ctx context.Context, base http.RoundTripper, shipped bool) error
}

var testCases = []testCase{
	{"go-github v89", secondaryLimit, json(`{"login":"octocat"}`), false, callGitHub},
	{"openai-go v3", openAILimit, json(`{"object":"chat.completion","choices":[{"message":{"content":"hello"}}]}`), true, callOpenAI},
	{"anthropic-sdk-go", anthropicLimit, json(`{"type":"message","role":"assistant","content":[]}`), true, callAnthropic},
	{"stripe-go v85", stripeLimit, json(`{"id":"cus_1","object":"customer"}`), false, callStripe},
	{"slack-go", slackLimit, json(`{"ok":true}`), false, callSlack},
	{"aws-sdk-go-v2 STS", awsLimit, xml(identity), true, callSTS},
	{"aws-sdk-go-v2 S3", slowDown, xml(" "), true, callS3},
}

// Rejections as the APIs document them, with delays of about a second.
var (
	secondaryLimit = rejection(http.StatusTooManyRequests,
		`{"message":"You have exceeded a secondary rate limit.","documentation_url":"https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits"}`,
		"Retry-After", "1", "X-RateLimit-Limit", "5000", "X-RateLimit-Remaining", "4990", "X-RateLimit-Resource", "core")
	openAILimit = rejection(http.StatusTooManyRequests,
		`{"error":{"message":"Rate limit reached for requests","type":"requests","code":"rate_limit_exceeded"}}`,
		"Retry-After", "1", "Retry-After-Ms", "1000", "X-RateLimit-Limit-Requests", "60", "X-RateLimit-Remaining-Requests", "0", "X-RateLimit-Reset-Requests", "1s")
	anthropicLimit = rejection(http.StatusTooManyRequests,
		`{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your rate limit."}}`,
		"Retry-After", "1", "Anthropic-RateLimit-Requests-Limit", "50", "Anthropic-RateLimit-Requests-Remaining", "49")
	stripeLimit = rejection(http.StatusTooManyRequests,
		`{"error":{"type":"invalid_request_error","code":"rate_limit","message":"Too many requests in a short period"}}`)
	slackLimit = rejection(http.StatusTooManyRequests, `{"ok":false,"error":"ratelimited"}`, "Retry-After", "1")
	awsLimit   = heedtest.Response{Status: http.StatusBadRequest, Header: http.Header{"Content-Type": {"text/xml"}},
		Body: `<ErrorResponse><Error><Type>Sender</Type><Code>Throttling</Code><Message>Rate exceeded</Message></Error></ErrorResponse>`}
	slowDown = heedtest.Response{Status: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"application/xml"}},
		Body: `<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`}
)

const identity = `<GetCallerIdentityResponse><GetCallerIdentityResult><Account>1</Account></GetCallerIdentityResult></GetCallerIdentityResponse>`

// rejection returns a JSON response with the headers that pairs lists as names and values.
func rejection(status int, body string, pairs ...string) heedtest.Response {
	r := json(body)
	r.Status = status
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	return r
}

func json(body string) heedtest.Response {
	return heedtest.Response{Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

func xml(body string) heedtest.Response {
	return heedtest.Response{Header: http.Header{"Content-Type": {"text/xml"}}, Body: body}
}

// client returns a client above base: with heed, or with nothing if shipped is true.
func client(base http.RoundTripper, shipped bool) *http.Client {
	if shipped {
		return &http.Client{Transport: base}
	}
	return heed.NewClient(&heed.Transport{Base: base})
}

func callGitHub(ctx context.Context, base http.RoundTripper, shipped bool) error {
	c, err := github.NewClient(base, "token")
	if shipped {
		c, err = gogithub.NewClient(gogithub.WithHTTPClient(client(base, true)), gogithub.WithAuthToken("token"))
	}
	if err != nil {
		return err
	}
	_, _, err = c.Users.Get(ctx, "octocat")
	return err
}

func callOpenAI(ctx context.Context, base http.RoundTripper, shipped bool) error {
	c := openai.NewClient(base, "key")
	if shipped {
		c = gopenai.NewClient(openaioption.WithHTTPClient(client(base, true)), openaioption.WithAPIKey("key"))
	}
	_, err := openai.Complete(ctx, c, "hello")
	return err
}

func callAnthropic(ctx context.Context, base http.RoundTripper, shipped bool) error {
	c := newAnthropic(client(base, false), "key")
	if shipped {
		c = anthropic.NewClient(anthropicoption.WithHTTPClient(client(base, true)), anthropicoption.WithAPIKey("key"))
	}
	_, err := c.Messages.New(ctx, anthropic.MessageNewParams{
		Model:     "a-model",
		MaxTokens: 10,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	})
	return err
}

func callStripe(ctx context.Context, base http.RoundTripper, shipped bool) error {
	c := stripe.NewClient(base, "sk_test_1")
	if shipped {
		c = gostripe.NewClient("sk_test_1", gostripe.WithBackends(gostripe.NewBackendsWithConfig(&gostripe.BackendConfig{
			HTTPClient:    client(base, true),
			LeveledLogger: &gostripe.LeveledLogger{Level: gostripe.LevelNull},
		})))
	}
	_, err := c.V1Customers.Create(ctx, &gostripe.CustomerCreateParams{Email: gostripe.String("a@example.com")})
	return err
}

func callSlack(ctx context.Context, base http.RoundTripper, shipped bool) error {
	_, err := newSlack(client(base, shipped), "token").AuthTestContext(ctx)
	return err
}

func callSTS(ctx context.Context, base http.RoundTripper, shipped bool) error {
	_, err := newSTS(client(base, shipped), credentials).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	return err
}

func callS3(ctx context.Context, base http.RoundTripper, shipped bool) error {
	c := usess3.NewClient(base, "us-east-1", credentials)
	if shipped {
		c = s3.New(s3.Options{Region: "us-east-1", HTTPClient: client(base, true), Credentials: credentials})
	}
	_, err := c.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String("bucket"), Key: aws.String("key")})
	return err
}

var credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
})
