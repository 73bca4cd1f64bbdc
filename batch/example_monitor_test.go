package batch_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/heed-go/heed/batch"
)

// A Monitor shows jobs and Outboxes on a debugpage.Page, with Page.Batches, and in metrics, with
// Config.Batches of packages otelheed and promheed.
func ExampleMonitor() {
	m := &batch.Monitor{}
	_, _ = batch.Run(context.Background(), slices.Values([]string{"a", "b", "c"}), func(_ context.Context, item string) error {
		if item == "b" {
			return errors.New("it is locked")
		}
		return nil
	}, batch.Options{Job: "reports", Total: 3, Monitor: m})
	for _, s := range m.Snapshot() {
		fmt.Println(s.Name, s.Done, "done,", s.Failed, "failed, ended:", !s.Ended.IsZero())
	}
	// Output: reports 2 done, 1 failed, ended: true
}
