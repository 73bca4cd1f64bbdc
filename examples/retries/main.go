// Retries shows which requests are retried when a server fails in seven ways: with a plain
// http.Client, and with heed.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
)

// A scenario is a request and the first responses of the server. Later requests succeed.
type scenario struct {
	title     string
	responses []heedtest.Response
	method    string // "": GET
	key       string // Idempotency-Key
}

var scenarios = []scenario{
	{title: "too many requests: come back in 1 s", responses: []heedtest.Response{retryAfter(429, "1")}},
	{title: "a deployment: 503, then 502", responses: []heedtest.Response{{Status: 503}, {Status: 502}}},
	{title: "the connection breaks", responses: []heedtest.Response{{Fault: heedtest.Drop}}},
	{title: "an upload, while the server is closed for 1 s", method: "PUT", responses: []heedtest.Response{retryAfter(503, "1")}},
	{title: "an order that fails: it may have been done", method: "POST", responses: []heedtest.Response{{Status: 500}}},
	{title: "an order with an Idempotency-Key", method: "POST", key: "order-7", responses: []heedtest.Response{{Status: 500}}},
	{title: "closed for an hour, and the caller has 5 s", responses: []heedtest.Response{retryAfter(503, "3600")}},
}

func retryAfter(status int, seconds string) heedtest.Response {
	return heedtest.Response{Status: status, Header: http.Header{"Retry-After": {seconds}}}
}

func main() {
	if err := runScenarios(os.Stdout); err != nil {
		log.Fatal("retries: ", err)
	}
}

func runScenarios(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "the server\tplain\theed\tsent\ttime\twhy no more")
	for _, s := range scenarios {
		plain, err := s.run(func(base http.RoundTripper) *http.Client { return &http.Client{Transport: base} })
		if err != nil {
			return err
		}
		ours, err := s.run(func(base http.RoundTripper) *http.Client { return heed.NewClient(&heed.Transport{Base: base}) })
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.1f s\t%s\n", s.title, plain.status, ours.status, ours.sent, ours.took.Seconds(), ours.stopReason)
	}
	return t.Flush()
}

// An outcome is the result of a scenario.
type outcome struct {
	status, stopReason string
	sent               int
	took               time.Duration
}

// run runs s with the client that newClient returns for a transport to the server.
func (s scenario) run(newClient func(http.RoundTripper) *http.Client) (e outcome, err error) {
	server := &heedtest.Server{Respond: heedtest.Script(s.responses...)}
	server.Start()
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, s.method, server.URL, nil)
	if err != nil {
		return e, err
	}
	if s.method != "" {
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader("all of it"))) // it can be read only once
	}
	req.Header.Set("Idempotency-Key", s.key) // an empty value means no key
	start := time.Now()
	e.status = "no response"
	if resp, err := newClient(server.Transport()).Do(req); err == nil {
		info, _ := heed.InfoFrom(resp)
		if e.status = fmt.Sprint(resp.StatusCode); info.StopReason != nil {
			e.stopReason = info.StopReason.Error()
		}
		resp.Body.Close()
	}
	e.sent, e.took = len(server.Requests()), time.Since(start)
	return e, nil
}
