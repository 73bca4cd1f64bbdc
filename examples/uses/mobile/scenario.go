package mobile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

const (
	devices = 100
	events  = 10               // of each device
	asleep  = 10 * time.Minute // from the events, which are recorded offline, to the start of all devices
	offline = time.Minute      // after that start, for each third device
)

// Scenario sends 10 events of each of 100 devices. They are recorded offline, then the
// program of each device ends, and all start again at the same moment, some still offline. The
// default is an http.Client that sends the events at that moment.
func Scenario() scenario.Scenario {
	return scenario.Scenario{
		Name:    "mobile",
		Calls:   devices * events,
		API:     func(c *scenario.Counts) func(heedtest.Request) heedtest.Response { return newAPI(c).respond },
		Default: fleet(sendAll),
		Heed:    fleet(recordAndSend),
	}
}

// fleet runs all devices at the same time. A device returns the number of its events that
// were not sent.
func fleet(device func(ctx context.Context, base http.RoundTripper, dir string, events [][]byte) (failed int)) scenario.Job {
	return func(ctx context.Context, base http.RoundTripper) int {
		dir, err := os.MkdirTemp("", "mobile")
		if err != nil {
			return devices * events
		}
		defer os.RemoveAll(dir)
		var failed atomic.Int64
		var all sync.WaitGroup
		for d := range devices {
			all.Go(func() {
				online := time.Now().Add(asleep)
				if d%3 == 0 {
					online = online.Add(offline)
				}
				var recorded [][]byte
				for e := range events {
					recorded = append(recorded, fmt.Appendf(nil, `{"device":%d,"event":%d}`, d, e))
				}
				failed.Add(int64(device(ctx, network{base, online}, filepath.Join(dir, strconv.Itoa(d)), recorded)))
			})
		}
		all.Wait()
		return int(failed.Load())
	}
}

func recordAndSend(ctx context.Context, base http.RoundTripper, dir string, events [][]byte) (failed int) {
	if os.Mkdir(dir, 0o700) != nil {
		return len(events)
	}
	wake := time.Now().Add(asleep)
	sent := 0
	count := func(d batch.Delivery) batch.Action {
		if d.Err == nil {
			sent++
		}
		return batch.Leave
	}
	box, err := Open(base, dir, "token", count)
	if err != nil {
		return len(events)
	}
	for _, e := range events {
		if Record(box, e) != nil {
			return len(events)
		}
	}
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := box.Close(soon); err != nil {
		return len(events)
	}
	time.Sleep(time.Until(wake))
	if box, err = Open(base, dir, "token", count); err != nil {
		return len(events)
	}
	err = box.Drain(ctx)
	if _, e := box.Close(ctx); err != nil || e != nil {
		return len(events)
	}
	return len(events) - sent
}

func sendAll(ctx context.Context, base http.RoundTripper, _ string, events [][]byte) (failed int) {
	time.Sleep(asleep)
	client := &http.Client{Transport: base}
	for _, e := range events {
		if send(ctx, client, e) != nil {
			failed++
		}
	}
	return failed
}

func send(ctx context.Context, client *http.Client, event []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://api.telemetry.example/v1/events", bytes.NewReader(event))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		return errors.New(resp.Status)
	}
	return nil
}

// A network is that of a device, which cannot be reached before a time.
type network struct {
	base   http.RoundTripper
	online time.Time
}

// RoundTrip implements http.RoundTripper.
func (n network) RoundTrip(req *http.Request) (*http.Response, error) {
	if time.Now().Before(n.online) {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("network is unreachable")}
	}
	return n.base.RoundTrip(req)
}
