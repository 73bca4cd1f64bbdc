package github

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// An api is the part of GitHub's REST API that the job uses, with the limits of
// https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api: 5,000 requests
// per hour, 900 points per minute and 100 requests at the same time. As the page warns, a
// secondary limit may also reject requests for undisclosed reasons, and then states no delay.
type api struct {
	counts *scenario.Counts
	issues int

	mu          sync.Mutex
	primary     scenario.Window
	points      scenario.Window
	inFlight    []time.Time // when the requests end that are being processed
	writes      int
	undisclosed time.Time       // end of the undisclosed limit
	labeled     map[string]bool // by path of the issue's labels
}

const (
	latency       = 80 * time.Millisecond
	maxConcurrent = 100
	undisclosedAt = 300 // the write that an undisclosed limit rejects
	failEvery     = 200 // of so many writes, one ends with a 502 after it was processed
	documentation = "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api"
)

// newAPI returns an API for an account that has 500 requests left for the next 20 minutes.
func newAPI(c *scenario.Counts, issues int) *api {
	return &api{
		counts: c, issues: issues, labeled: make(map[string]bool),
		primary: scenario.Window{Limit: 5000, Per: time.Hour, Used: 4500, End: time.Now().Add(20 * time.Minute)},
		points:  scenario.Window{Limit: 900, Per: time.Minute},
	}
}

func (a *api) respond(req heedtest.Request) heedtest.Response {
	call := req.Method + " " + req.URL
	first := a.counts.Received(call) == 1
	a.mu.Lock()
	defer a.mu.Unlock()
	if resp, ok := a.reject(req); ok {
		a.counts.Throttled()
		return resp
	}
	u, err := url.Parse(req.URL)
	if err != nil {
		return a.json(http.StatusBadRequest, map[string]string{"message": err.Error()})
	}
	if req.Method == http.MethodGet {
		return a.list(u)
	}
	issue := u.Path // /repos/owner/name/issues/1/labels
	if !a.labeled[issue] {
		a.labeled[issue] = true
		a.counts.Done(call)
	}
	if a.writes%failEvery == 0 && first {
		return heedtest.Response{Status: http.StatusBadGateway, Body: "<html>Unicorn!</html>", Delay: latency}
	}
	return a.json(http.StatusOK, []map[string]string{{"name": "triage"}})
}

// reject returns the response to a request that exceeds a limit.
func (a *api) reject(req heedtest.Request) (heedtest.Response, bool) {
	now := time.Now()
	if !a.primary.Take(now, 1) {
		return a.json(http.StatusForbidden, map[string]string{
			"message":           "API rate limit exceeded for user ID 1.",
			"documentation_url": documentation,
		}), true
	}
	points := 1
	if req.Method != http.MethodGet {
		points = 5
		if a.writes++; a.writes == undisclosedAt {
			a.undisclosed = now.Add(time.Minute)
		}
	}
	a.inFlight = slices.DeleteFunc(a.inFlight, func(end time.Time) bool { return !end.After(now) })
	switch {
	case now.Before(a.undisclosed):
		return a.secondary(), true
	case !a.points.Take(now, points), len(a.inFlight) >= maxConcurrent:
		resp := a.secondary()
		resp.Header.Set("Retry-After", "60")
		return resp, true
	}
	a.inFlight = append(a.inFlight, now.Add(latency))
	return heedtest.Response{}, false
}

func (a *api) secondary() heedtest.Response {
	return a.json(http.StatusForbidden, map[string]string{
		"message":           "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
		"documentation_url": documentation + "#about-secondary-rate-limits",
	})
}

// list returns a page of issues.
func (a *api) list(u *url.URL) heedtest.Response {
	query := u.Query()
	size, _ := strconv.Atoi(query.Get("per_page"))
	page, _ := strconv.Atoi(query.Get("page"))
	page, size = max(page, 1), min(max(size, 1), 100)
	issues := []map[string]int{}
	for n := (page-1)*size + 1; n <= min(page*size, a.issues); n++ {
		issues = append(issues, map[string]int{"number": n})
	}
	resp := a.json(http.StatusOK, issues)
	if page*size < a.issues {
		query.Set("page", strconv.Itoa(page+1))
		resp.Header.Set("Link", fmt.Sprintf(`<https://api.github.com%s?%s>; rel="next"`, u.Path, query.Encode()))
	}
	return resp
}

// json returns a response with the headers of the primary limit.
func (a *api) json(status int, body any) heedtest.Response {
	text, err := json.Marshal(body)
	if err != nil {
		panic("github: " + err.Error())
	}
	h := make(http.Header)
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("X-RateLimit-Limit", strconv.Itoa(a.primary.Limit))
	h.Set("X-RateLimit-Remaining", strconv.Itoa(a.primary.Limit-a.primary.Used))
	h.Set("X-RateLimit-Used", strconv.Itoa(a.primary.Used))
	h.Set("X-RateLimit-Reset", strconv.FormatInt(a.primary.End.Unix(), 10))
	h.Set("X-RateLimit-Resource", "core")
	return heedtest.Response{Status: status, Header: h, Body: string(text), Delay: latency}
}
