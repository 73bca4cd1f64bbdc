package queue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// The functions of a Trace are called for each ticket, for logs and metrics.
func ExampleTrace() {
	q := queue.Queue{
		Clock:   clock.NewMock(),
		MaxWait: time.Second,
		Trace: &queue.Trace{
			Granted: func(t *queue.Ticket) { fmt.Printf("%s: granted after %v\n", t.Tenant, t.Waited()) },
			Failed:  func(t *queue.Ticket, err error) { fmt.Printf("%s: %v\n", t.Tenant, err) },
		},
	}
	mails := throttle.Demand{Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "mails", Count: 1, Per: time.Hour})}
	for _, tenant := range []string{"ann", "bob"} {
		t := queue.Ticket{Tenant: tenant}
		t.Add(mails)
		if err := q.Wait(context.Background(), &t); err == nil {
			q.Report(context.Background(), &t, throttle.Feedback{})
		}
	}
	// Output:
	// ann: granted after 0s
	// bob: throttle: rejected by limit "mails": ask again in 1 h
}
