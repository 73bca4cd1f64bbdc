// Sdks makes one call with each of six API clients to a server that rejects it once, as the
// real API does. It shows how many requests the server received: with the client as it is
// shipped, and with heed beneath and the settings of docs/with-sdks.md.
//
// All hosts lead to a server on this machine; heed sees the names of the real ones.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"text/tabwriter"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
)

func main() {
	if err := run(os.Stdout, (*heedtest.Server).Start); err != nil {
		log.Fatal("sdks: ", err)
	}
}

// run prints a line per case. start starts a server.
func run(out io.Writer, start func(*heedtest.Server)) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "SDK\trejected with\tas shipped: sent\t\ttime\twith heed: sent\t\ttime")
	for _, c := range testCases {
		shipped := c.measure(start, true)
		ours := c.measure(start, false)
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", c.sdk, c.rejection.Status, shipped, ours)
	}
	return t.Flush()
}

// A measurement is the outcome of one call.
type measurement struct {
	sent int
	err  error
	took time.Duration
}

func (m measurement) String() string {
	result := "ok"
	if m.err != nil {
		result = "error"
	}
	return fmt.Sprintf("%d\t%s\t%.1f s", m.sent, result, m.took.Seconds())
}

// measure makes the call of c, to a server of its own.
func (c testCase) measure(start func(*heedtest.Server), shipped bool) measurement {
	server := &heedtest.Server{Respond: heedtest.Script(c.rejection, c.success)}
	start(server)
	defer server.Close()
	base := withoutTLS{server.Transport()}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: base}
	if !shipped {
		client = heed.NewClient(&heed.Transport{Base: base})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	began := time.Now()
	err := c.call(ctx, client, shipped)
	return measurement{len(server.Requests()), err, time.Since(began)}
}

// withoutTLS sends requests for https URLs without TLS, to a server for tests.
type withoutTLS struct{ *http.Transport }

func (w withoutTLS) RoundTrip(req *http.Request) (*http.Response, error) {
	plain := req.Clone(req.Context())
	plain.URL.Scheme = "http"
	return w.Transport.RoundTrip(plain)
}
