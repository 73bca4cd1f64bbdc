package crawler

import (
	"context"
	"fmt"
	"net/http"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// Scenario fetches 25 pages from each of 50 hosts.
func Scenario() scenario.Scenario {
	var urls []string
	for host := range 50 {
		for page := range 25 {
			urls = append(urls, fmt.Sprintf("https://www.host-%d.example/%d", host, page))
		}
	}
	crawl := func(newClient func(http.RoundTripper) *http.Client) scenario.Job {
		return func(ctx context.Context, base http.RoundTripper) (failed int) {
			return Crawl(ctx, newClient(base), urls, func(string, []byte) {})
		}
	}
	return scenario.Scenario{
		Name:    "crawler",
		Calls:   len(urls),
		API:     func(c *scenario.Counts) func(heedtest.Request) heedtest.Response { return newWeb(c).respond },
		Default: crawl(func(base http.RoundTripper) *http.Client { return &http.Client{Transport: base} }),
		Heed:    crawl(NewClient),
	}
}
