// Package openai gets completions of many prompts, with openai-go and heed.
package openai

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/heed-go/heed"
)

const (
	model     = "gpt-4o"
	maxTokens = 100 // of a completion
)

// NewClient returns a client for all goroutines of a program. Nil as base means
// http.DefaultTransport.
func NewClient(base http.RoundTripper, key string) openai.Client {
	transport := &heed.Transport{
		Base: base,
		Retry: &heed.RetryPolicy{
			MaxServerWait:  time.Hour, // many prompts may wait for tokens longer than the default
			MaxElapsed:     time.Hour,
			AttemptTimeout: 5 * time.Minute,
		},
	}
	return openai.NewClient(
		option.WithHTTPClient(heed.NewClient(transport)),
		option.WithAPIKey(key),
		option.WithMaxRetries(0),
	)
}

// Complete returns the completion of a prompt. The request waits until the model has as many
// tokens left as the API counts before it answers: those of the prompt, about one for four
// characters, and those that the completion may have.
func Complete(ctx context.Context, client openai.Client, prompt string) (string, error) {
	ctx = heed.WithOptions(ctx, heed.RequestOptions{
		QuotaName: model, // each model has a quota of its own
		Costs:     map[string]int64{"tokens": int64(len(prompt)/4 + maxTokens)},
	})
	completion, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model:               model,
		Messages:            []openai.ChatCompletionMessageParamUnion{openai.UserMessage(prompt)},
		MaxCompletionTokens: openai.Int(maxTokens),
	})
	if err != nil {
		return "", err
	}
	if len(completion.Choices) == 0 {
		return "", errors.New("openai: the completion has no choices")
	}
	return completion.Choices[0].Message.Content, nil
}

// CompleteAll calls use with the completion of each prompt. It returns how many failed.
func CompleteAll(ctx context.Context, client openai.Client, prompts []string, use func(i int, text string)) (failed int) {
	var n atomic.Int64
	var all sync.WaitGroup
	for i, prompt := range prompts {
		all.Go(func() {
			text, err := Complete(ctx, client, prompt)
			if err != nil {
				n.Add(1)
				return
			}
			use(i, text)
		})
	}
	all.Wait()
	return int(n.Load())
}
