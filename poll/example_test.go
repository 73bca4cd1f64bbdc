package poll_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/poll"
)

// A scriptedTransport returns its responses in order, one per request.
type scriptedTransport []http.Response

func (f *scriptedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := (*f)[0]
	*f = (*f)[1:]
	resp.Request = r
	return &resp, nil
}

func newResponse(status int, body string, headers ...string) http.Response {
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Set(headers[i], headers[i+1])
	}
	return http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body))}
}

// The server creates a machine in the background and asks to be polled in a minute. The
// program has only ten seconds, so Follow returns immediately with an Operation. Resume
// continues later.
func ExamplePoller() {
	client := heed.NewClient(&heed.Transport{Base: &scriptedTransport{
		newResponse(202, "", "Operation-Location", "https://api.example.com/operations/7", "Retry-After", "60"),
		newResponse(200, `{"status":"Succeeded"}`),
		newResponse(200, `{"name":"vm1"}`),
	}})
	poller := &poll.Poller{Client: client}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	req, _ := http.NewRequestWithContext(ctx, "PUT", "https://api.example.com/vms/vm1", strings.NewReader("{}"))
	accepted, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = poller.Follow(ctx, accepted)
	fmt.Println(err)

	var stopped *poll.Error
	if !errors.As(err, &stopped) {
		return
	}
	later := stopped.Operation
	later.Next = time.Time{} // a minute has passed
	resp, err := poller.Resume(ctx, later)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(resp.StatusCode, string(body))
	// Output:
	// poll: operation https://api.example.com/operations/7 after 0 polls: context deadline exceeded
	// 200 {"name":"vm1"}
}

// Google's operations have a name that is part of the status URL, and a member "done"
// that is true when they have ended.
func ExamplePoller_parseStatus() {
	poller := &poll.Poller{
		Client: heed.NewClient(&heed.Transport{Base: &scriptedTransport{
			newResponse(200, `{"name":"operations/7","metadata":{"progressPercent":40}}`),
			newResponse(200, `{"name":"operations/7","done":true,"response":{"size":3}}`),
		}}),
		Interval:    backoff.Constant(0),
		MinInterval: 1,
		ParseStatus: func(_ *http.Response, body []byte) (s poll.Status, err error) {
			var op struct {
				Done  bool
				Error *struct{ Message string }

				Metadata struct{ ProgressPercent float64 }
			}
			err = json.Unmarshal(body, &op)
			s.Percent = op.Metadata.ProgressPercent
			if s.Done = op.Done; op.Error != nil {
				s.Failed, s.Status = true, op.Error.Message
			}
			return s, err
		},
		Progress: func(op poll.Operation) { fmt.Printf("look %d: %v %%\n", op.Polls, op.Percent) },
	}
	resp, err := poller.Resume(context.Background(), poll.Operation{URL: "https://example.googleapis.com/v1/operations/7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(string(body))
	// Output:
	// look 1: 40 %
	// look 2: 0 %
	// {"name":"operations/7","done":true,"response":{"size":3}}
}
