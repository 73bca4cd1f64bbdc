// Retries shows what is sent again and what is not, when a server fails in seven
// ways: first by a plain http.Client, then by heed.
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

// A scene is a request, and what the server answers at first. Then it is well.
type scene struct {
	title  string
	first  []heedtest.Answer
	method string // "": GET
	key    string // Idempotency-Key
}

var scenes = []scene{
	{title: "too many requests: come back in 1 s", first: []heedtest.Answer{later(429, "1")}},
	{title: "a deployment: 503, then 502", first: []heedtest.Answer{{Status: 503}, {Status: 502}}},
	{title: "the connection breaks", first: []heedtest.Answer{{Fault: heedtest.Drop}}},
	{title: "an upload, while the server is closed for 1 s", method: "PUT", first: []heedtest.Answer{later(503, "1")}},
	{title: "an order that fails: it may have been done", method: "POST", first: []heedtest.Answer{{Status: 500}}},
	{title: "an order with an Idempotency-Key", method: "POST", key: "order-7", first: []heedtest.Answer{{Status: 500}}},
	{title: "closed for an hour, and the caller has 5 s", first: []heedtest.Answer{later(503, "3600")}},
}

func later(status int, seconds string) heedtest.Answer {
	return heedtest.Answer{Status: status, Header: http.Header{"Retry-After": {seconds}}}
}

func main() {
	if err := play(os.Stdout); err != nil {
		log.Fatal("retries: ", err)
	}
}

func play(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "the server\tplain\theed\tsent\ttime\twhy no more")
	for _, s := range scenes {
		plain, err := s.play(func(base http.RoundTripper) *http.Client { return &http.Client{Transport: base} })
		if err != nil {
			return err
		}
		ours, err := s.play(func(base http.RoundTripper) *http.Client { return heed.NewClient(&heed.Transport{Base: base}) })
		if err != nil {
			return err
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%.1f s\t%s\n", s.title, plain.answer, ours.answer, ours.sent, ours.took.Seconds(), ours.why)
	}
	return t.Flush()
}

// An end is what became of a scene.
type end struct {
	answer, why string
	sent        int
	took        time.Duration
}

// play plays s with the client that dial makes over a connection to the server.
func (s scene) play(dial func(http.RoundTripper) *http.Client) (e end, err error) {
	server := &heedtest.Server{Answer: heedtest.Script(s.first...)}
	server.Start()
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, s.method, server.URL, nil)
	if err != nil {
		return e, err
	}
	if s.method != "" {
		req.Body = io.NopCloser(io.MultiReader(strings.NewReader("all of it"))) // it can be read once
	}
	req.Header.Set("Idempotency-Key", s.key) // an empty one is none
	start := time.Now()
	e.answer = "no answer"
	if resp, err := dial(server.Transport()).Do(req); err == nil {
		info, _ := heed.InfoFrom(resp)
		if e.answer = fmt.Sprint(resp.StatusCode); info.GaveUp != nil {
			e.why = info.GaveUp.Error()
		}
		resp.Body.Close()
	}
	e.sent, e.took = len(server.Arrivals()), time.Since(start)
	return e, nil
}
