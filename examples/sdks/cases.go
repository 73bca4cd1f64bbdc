package main

import (
	"context"
	"net/http"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-github/v89/github"
	"github.com/openai/openai-go/v3"
	openaioption "github.com/openai/openai-go/v3/option"
	"github.com/stripe/stripe-go/v85"

	"github.com/heed-go/heed/heedtest"
)

// A testCase is one call of an SDK, how the API rejects it, and the response to it.
type testCase struct {
	sdk       string
	rejection heedtest.Response
	success   heedtest.Response

	// call makes the call with an http.Client. shipped means that the SDK keeps the settings
	// that it is shipped with; otherwise it has those of clients.go.
	call func(ctx context.Context, c *http.Client, shipped bool) error
}

var testCases = []testCase{
	{"go-github v89", secondaryLimit, json(`{"login":"octocat"}`), callGitHub},
	{"openai-go v3", openAILimit, json(`{"object":"chat.completion","choices":[]}`), callOpenAI},
	{"anthropic-sdk-go", anthropicLimit, json(`{"type":"message","role":"assistant","content":[]}`), callAnthropic},
	{"stripe-go v85", stripeLimit, json(`{"id":"cus_1","object":"customer"}`), callStripe},
	{"slack-go", slackLimit, json(`{"ok":true}`), callSlack},
	{"aws-sdk-go-v2", awsLimit, xml(identity), callSTS},
	{"aws-sdk-go-v2, NopRetryer", awsLimit, xml(identity), callSTSWithoutRetries},
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

func callGitHub(ctx context.Context, c *http.Client, shipped bool) error {
	client, err := newGitHub(c, "token")
	if shipped {
		client, err = github.NewClient(github.WithHTTPClient(c), github.WithAuthToken("token"))
	}
	if err != nil {
		return err
	}
	_, _, err = client.Users.Get(ctx, "octocat")
	return err
}

func callOpenAI(ctx context.Context, c *http.Client, shipped bool) error {
	client := newOpenAI(c, "key")
	if shipped {
		client = openai.NewClient(openaioption.WithHTTPClient(c), openaioption.WithAPIKey("key"))
	}
	_, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model:    "a-model",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")},
	})
	return err
}

func callAnthropic(ctx context.Context, c *http.Client, shipped bool) error {
	client := newAnthropic(c, "key")
	if shipped {
		client = anthropic.NewClient(anthropicoption.WithHTTPClient(c), anthropicoption.WithAPIKey("key"))
	}
	_, err := client.Messages.New(ctx, anthropic.MessageNewParams{
		Model:     "a-model",
		MaxTokens: 10,
		Messages:  []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))},
	})
	return err
}

func callStripe(ctx context.Context, c *http.Client, shipped bool) error {
	client := newStripe(c, "sk_test_1")
	quiet := &stripe.LeveledLogger{Level: stripe.LevelNull}
	if shipped {
		client = stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{HTTPClient: c, LeveledLogger: quiet})))
	}
	_, err := client.V1Customers.Create(ctx, &stripe.CustomerCreateParams{Email: stripe.String("a@example.com")})
	return err
}

func callSlack(ctx context.Context, c *http.Client, _ bool) error {
	_, err := newSlack(c, "token").AuthTestContext(ctx)
	return err
}

func callSTS(ctx context.Context, c *http.Client, _ bool) error {
	_, err := newSTS(c, credentials).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	return err
}

func callSTSWithoutRetries(ctx context.Context, c *http.Client, shipped bool) error {
	if shipped {
		return callSTS(ctx, c, true)
	}
	_, err := newSTSWithoutRetries(c, credentials).GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	return err
}

var credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
})
