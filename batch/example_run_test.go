package batch_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
)

// A job creates an order for each customer. Its checkpoint lets it continue after it was
// killed; the Idempotency-Key lets the server recognize a request that is repeated then.
func ExampleRun() {
	server := new(heedtest.Server) // stands for the API
	server.Start()
	defer server.Close()
	dir, _ := os.MkdirTemp("", "example")
	defer os.RemoveAll(dir)

	client := heed.NewClient(nil)
	customers := []string{"ada", "bob", "eve"}
	create := func(ctx context.Context, customer string) error {
		req, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/orders", strings.NewReader(customer))
		if err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", batch.ItemFrom(ctx).IdempotencyKey)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %s", resp.Status)
		}
		return nil
	}
	options := batch.Options{
		Workers:    50,
		Total:      len(customers),
		Checkpoint: filepath.Join(dir, "orders.checkpoint"),
		Job:        "orders of 2026-11",
	}
	for range 2 { // the second time nothing is left to do
		report, err := batch.Run(context.Background(), slices.Values(customers), create, options)
		fmt.Println(report.Done, "done,", report.Resumed, "of them before,", err)
	}
	fmt.Println(len(server.Requests()), "requests")
	// Output:
	// 3 done, 0 of them before, <nil>
	// 3 done, 3 of them before, <nil>
	// 3 requests
}

// Failed items do not end a job. Its report has their errors.
func ExampleRun_errors() {
	half := func(_ context.Context, n int) error {
		if n%2 == 1 {
			return fmt.Errorf("%d is odd", n)
		}
		return nil
	}
	report, err := batch.Run(context.Background(), slices.Values([]int{2, 3, 4, 5}), half, batch.Options{})
	fmt.Println(err)
	for _, e := range report.Errors {
		fmt.Println(e.Index, e.Err)
	}
	// Output:
	// batch: 2 items failed, and the outcome of 0 is unknown; the first: item 1: 3 is odd
	// 1 3 is odd
	// 3 5 is odd
}
