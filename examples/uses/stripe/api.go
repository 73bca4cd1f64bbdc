package stripe

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// An api creates customers like the API of Stripe in a sandbox: 25 requests per second, see
// https://docs.stripe.com/rate-limits, and one effect for each Idempotency-Key, see
// https://docs.stripe.com/api/idempotent_requests. Limits are checked before the keys.
//
// Of 100 customers, one is created without a response, because the connection is lost; of 200,
// one gets a lock timeout, which Stripe asks to retry.
type api struct {
	counts *scenario.Counts

	mu       sync.Mutex
	admitted int
	rate     scenario.Bucket
	executed map[string]execution // by Idempotency-Key
}

// An execution is the first request with an Idempotency-Key.
type execution struct {
	form     string
	customer string
	done     time.Time
}

const latency = 150 * time.Millisecond

func newAPI(c *scenario.Counts) *api {
	return &api{counts: c, rate: scenario.Bucket{Size: 25, Per: time.Second}, executed: make(map[string]execution)}
}

func (a *api) respond(req heedtest.Request) heedtest.Response {
	form, err := url.ParseQuery(string(req.Body))
	if err != nil {
		return fail(http.StatusBadRequest, "parameter_invalid", err.Error())
	}
	email, key := form.Get("email"), req.Header.Get("Idempotency-Key")
	first := a.counts.Received(email) == 1
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.rate.Take(now, 1) {
		a.counts.Throttled()
		resp := fail(http.StatusTooManyRequests, "rate_limit", "Request rate limit exceeded.")
		resp.Header.Set("Stripe-Rate-Limited-Reason", "global-rate")
		return resp
	}
	a.admitted++
	if e, ok := a.executed[key]; ok && key != "" {
		return e.replay(now, string(req.Body))
	}
	customer := "cus_" + strconv.Itoa(len(a.executed)+1)
	if a.admitted%200 == 50 && first {
		a.counts.Throttled()
		resp := fail(http.StatusTooManyRequests, "lock_timeout", "This object cannot be accessed right now because another API request or Stripe process is currently accessing it.")
		resp.Header.Set("Stripe-Should-Retry", "true")
		return resp
	}
	a.executed[key] = execution{string(req.Body), customer, now.Add(latency)}
	a.counts.Done(email)
	resp := created(customer)
	if a.admitted%100 == 0 && first {
		resp.Fault = heedtest.Drop
	}
	return resp
}

// replay returns the response to another request with the same key.
func (e execution) replay(now time.Time, form string) heedtest.Response {
	if form != e.form {
		return fail(http.StatusBadRequest, "idempotency_error", "Keys for idempotent requests can only be used with the same parameters they were first used with.")
	}
	if now.Before(e.done) {
		return fail(http.StatusConflict, "idempotency_key_in_use", "There is currently another in-progress request using this Idempotent Key.")
	}
	resp := created(e.customer)
	resp.Header.Set("Idempotent-Replayed", "true")
	return resp
}

func created(customer string) heedtest.Response {
	return respondJSON(http.StatusOK, map[string]string{"id": customer, "object": "customer"})
}

func fail(status int, code, message string) heedtest.Response {
	return respondJSON(status, map[string]any{"error": map[string]string{"type": "invalid_request_error", "code": code, "message": message}})
}

func respondJSON(status int, body any) heedtest.Response {
	text, err := json.Marshal(body)
	if err != nil {
		panic("stripe: " + err.Error())
	}
	return heedtest.Response{Status: status, Header: http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req_1"}}, Body: string(text), Delay: latency}
}
