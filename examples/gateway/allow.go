package main

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// An allowResponse is the body of a response of GET /allow. The headers state the same, and
// more.
type allowResponse struct {
	Allowed    bool  `json:"allowed"`
	Remaining  int64 `json:"remaining"`             // units left
	RetryAfter int64 `json:"retry_after,omitempty"` // seconds until a retry can succeed; 0: unknown, or never
}

// allow returns a handler that decides on units of a key and does nothing else: GET
// /allow?key=…&cost=… takes the units and responds with 200, or responds with 429 and the
// time to wait. It uses the Middleware, and therefore the same headers as other handlers.
// Each client has keys of its own. Only clients with the word allow may ask.
func allow(limits *rules.File, trace *throttlehttp.Trace) http.Handler {
	m := &throttlehttp.Middleware{
		Trace: trace,
		Limits: func(r *http.Request, t *queue.Ticket) error {
			key, cost, _ := parseRequest(r)
			limits.Add(t, rules.Descriptor{{Key: "allow", Value: clientOf(r).name + " " + key}})
			for i := range t.Demands {
				t.Demands[i].Cost *= cost
			}
			return nil
		},
		OnReject: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { writeResponse(w, http.StatusTooManyRequests) }),
	}
	granted := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { writeResponse(w, http.StatusOK) }))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !clientOf(r).mayAllow {
			writeProblem(w, http.StatusForbidden, "this client may not use /allow")
			return
		}
		if _, _, ok := parseRequest(r); !ok {
			http.Error(w, "gateway: /allow needs a key, and a cost from 1 to 1,000,000 if there is one", http.StatusBadRequest)
			return
		}
		granted.ServeHTTP(w, r)
	})
}

// parseRequest returns the key and the cost of a request.
func parseRequest(r *http.Request) (key string, cost int64, ok bool) {
	q := r.URL.Query()
	key, cost = q.Get("key"), 1
	if s := q.Get("cost"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 || n > 1_000_000 {
			return key, 0, false
		}
		cost = n
	}
	return key, cost, key != ""
}

func writeResponse(w http.ResponseWriter, status int) {
	h := w.Header()
	v := allowResponse{Allowed: status == http.StatusOK}
	v.Remaining, _ = strconv.ParseInt(h.Get("X-RateLimit-Remaining"), 10, 64)
	v.RetryAfter, _ = strconv.ParseInt(h.Get("Retry-After"), 10, 64)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
