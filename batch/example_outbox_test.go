package batch_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
)

// A device records events, also while it is offline. The requests are on disk when Submit
// returns, and are sent in order when the server can be reached. A seed that differs for
// each device spreads the devices that come online at the same time.
func ExampleOutbox() {
	server := new(heedtest.Server) // stands for the API
	server.Start()
	defer server.Close()
	dir, _ := os.MkdirTemp("", "example")
	defer os.RemoveAll(dir)

	outbox, err := batch.OpenOutbox(batch.OutboxConfig{
		Path: filepath.Join(dir, "events"),
		Client: heed.NewClient(&heed.Transport{
			StartJitter: 100 * time.Millisecond, // minutes in a program
			StartSeed:   "serial number of the device",
		}),
		Done: func(d batch.Delivery) batch.Action {
			if d.Err != nil {
				fmt.Println("not delivered:", d.Err)
				return batch.Leave
			}
			fmt.Println("delivered", d.ID, d.Response.StatusCode)
			return batch.Leave
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, event := range []string{"started", "opened"} {
		req, err := http.NewRequest("POST", server.URL+"/events", strings.NewReader(event))
		if err != nil {
			fmt.Println(err)
			return
		}
		_, err = outbox.Submit(req)
		if errors.Is(err, batch.ErrOutboxFull) {
			fmt.Println("dropped", event)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(outbox.Drain(ctx)) // as long as the system lets the program run
	left, err := outbox.Close(ctx)
	fmt.Println(len(left), "left,", err)
	// Output:
	// delivered 1 200
	// delivered 2 200
	// <nil>
	// 0 left, <nil>
}
