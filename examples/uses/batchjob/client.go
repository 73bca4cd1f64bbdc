// Package batchjob bills many customers in a job that shows its progress, and that continues
// where it was after it was killed.
package batchjob

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
)

// NewClient returns a client for all goroutines of a program. Nil as base means
// http.DefaultTransport.
func NewClient(base http.RoundTripper) *http.Client {
	return heed.NewClient(&heed.Transport{Base: base})
}

// Bill creates an invoice for each customer and shows the progress on out. A second call with
// the same customers and checkpoint continues the job.
func Bill(ctx context.Context, client *http.Client, customers []string, checkpoint string, out io.Writer) (batch.Report, error) {
	bill := func(ctx context.Context, customer string) error { return createInvoice(ctx, client, customer) }
	return batch.Run(ctx, slices.Values(customers), bill, batch.Options{
		Workers:    20,
		Total:      len(customers),
		Checkpoint: checkpoint,
		Progress:   func(p batch.Progress) { fmt.Fprintf(out, "\r%s %v\x1b[K", bar(p), p) },
	})
}

// bar returns a bar such as "[######..............]".
func bar(p batch.Progress) string {
	const width = 20
	full := width * (p.Done + p.Failed) / max(p.Total, 1)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// createInvoice creates the invoice of a customer. The key of the item is the same after a
// restart, so that the API recognizes a request that it has already processed.
func createInvoice(ctx context.Context, client *http.Client, customer string) error {
	body, err := json.Marshal(map[string]string{"customer": customer})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.billing.example/v1/invoices", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", batch.ItemFrom(ctx).IdempotencyKey)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return fmt.Errorf("customer %s: %s", customer, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
