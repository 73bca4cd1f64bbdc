package s3

import (
	"context"
	"fmt"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// Scenario uploads 4,000 objects of 1 KiB.
func Scenario() scenario.Scenario {
	objects := make(map[string][]byte)
	for i := range 4000 {
		objects[fmt.Sprintf("logs/2026-11-22/%d.json", i)] = make([]byte, 1<<10)
	}
	upload := func(newClient func(http.RoundTripper) *s3.Client) scenario.Job {
		return func(ctx context.Context, base http.RoundTripper) (failed int) {
			return Upload(ctx, newClient(base), "a-bucket", objects)
		}
	}
	return scenario.Scenario{
		Name:  "aws-sdk-go-v2 S3",
		Calls: len(objects),
		API:   func(c *scenario.Counts) func(heedtest.Request) heedtest.Response { return newAPI(c).respond },
		Default: upload(func(base http.RoundTripper) *s3.Client {
			return s3.New(s3.Options{Region: region, HTTPClient: &http.Client{Transport: base}, Credentials: account})
		}),
		Heed: upload(func(base http.RoundTripper) *s3.Client { return NewClient(base, region, account) }),
	}
}
