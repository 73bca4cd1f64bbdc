package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// An api is the chat completions of OpenAI, with the limits of a model in usage tier 1: 500
// requests and 30,000 tokens per minute, see https://platform.openai.com/docs/guides/rate-limits.
// They are restored continuously, the resets that it states are those of full limits, and
// rejected requests count, as https://help.openai.com/en/articles/5955604 says.
type api struct {
	counts *scenario.Counts

	mu               sync.Mutex
	requests, tokens scenario.Bucket
	unpaid           bool // all requests exceed the budget of the account
}

const latency = 800 * time.Millisecond

func newAPI(c *scenario.Counts) *api {
	return &api{
		counts:   c,
		requests: scenario.Bucket{Size: 500, Per: time.Minute},
		tokens:   scenario.Bucket{Size: 30000, Per: time.Minute},
	}
}

// An apiError is the body of a failure.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func (a *api) respond(req heedtest.Request) heedtest.Response {
	var body struct {
		Messages            []struct{ Content string }
		MaxCompletionTokens int `json:"max_completion_tokens"`
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := json.Unmarshal(req.Body, &body); err != nil || len(body.Messages) == 0 {
		return a.fail(http.StatusBadRequest, apiError{Message: "invalid request", Type: "invalid_request_error"})
	}
	prompt := body.Messages[0].Content
	a.counts.Received(prompt)
	if a.unpaid {
		return a.fail(http.StatusTooManyRequests, apiError{Type: "insufficient_quota", Code: "insufficient_quota",
			Message: "You exceeded your current quota, please check your plan and billing details."})
	}
	now, estimate := time.Now(), float64(len(prompt)/4+body.MaxCompletionTokens)
	if !a.requests.Take(now, 1) {
		return a.reject("requests", "RPM", &a.requests, 1)
	}
	if !a.tokens.Take(now, estimate) {
		return a.reject("tokens", "TPM", &a.tokens, estimate)
	}
	a.counts.Done(prompt)
	return a.json(http.StatusOK, map[string]any{
		"id": "chatcmpl-1", "object": "chat.completion", "model": model,
		"choices": []any{map[string]any{"finish_reason": "stop", "message": map[string]string{"role": "assistant", "content": "OK: " + prompt}}},
	})
}

// reject returns the response to a request that exceeds a limit by n units.
func (a *api) reject(unit, abbreviation string, limit *scenario.Bucket, n float64) heedtest.Response {
	a.counts.Throttled()
	wait := limit.Until(time.Now(), n)
	resp := a.fail(http.StatusTooManyRequests, apiError{Type: unit, Code: "rate_limit_exceeded", Message: fmt.Sprintf(
		"Rate limit reached for %s in organization org-1 on %s per min (%s): Limit %.0f, Used %.0f, Requested %.0f. Please try again in %v.",
		model, unit, abbreviation, limit.Size, limit.Size-limit.Left(time.Now()), n, wait.Round(time.Millisecond))})
	resp.Header.Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	resp.Header.Set("Retry-After-Ms", strconv.Itoa(int(math.Ceil(wait.Seconds()*1000))))
	return resp
}

func (a *api) fail(status int, e apiError) heedtest.Response {
	resp := a.json(status, map[string]apiError{"error": e})
	resp.Delay = latency / 20
	return resp
}

// json returns a response that states both limits, as OpenAI does.
func (a *api) json(status int, body any) heedtest.Response {
	text, err := json.Marshal(body)
	if err != nil {
		panic("openai: " + err.Error())
	}
	h, now := http.Header{"Content-Type": {"application/json"}}, time.Now()
	for name, limit := range map[string]*scenario.Bucket{"Requests": &a.requests, "Tokens": &a.tokens} {
		h.Set("X-Ratelimit-Limit-"+name, strconv.Itoa(int(limit.Size)))
		h.Set("X-Ratelimit-Remaining-"+name, strconv.Itoa(int(limit.Left(now))))
		h.Set("X-Ratelimit-Reset-"+name, limit.Until(now, limit.Size).Round(time.Millisecond).String())
	}
	return heedtest.Response{Status: status, Header: h, Body: string(text), Delay: latency}
}
