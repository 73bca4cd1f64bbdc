package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
)

// The ways in which the function of a job sends a POST.
var modes = []string{
	"keyed",      // with Item.IdempotencyKey
	"unkeyed",    // without a key
	"plain",      // without a key, by http.DefaultClient
	"background", // without a key, with context.Background
	"never",      // with a key and RepeatNever
}

type endsConfig struct {
	Mode  string
	Ends  int  // how often the job is ended
	Stops bool // by an interrupt, which the job obeys, instead of a kill
}

// An endsResult is what a job did whose process was ended many times at random moments.
type endsResult struct {
	Measured       string  `json:"measured"` // kills or stops
	Mode           string  `json:"mode"`
	Ends           int     `json:"ends"`
	Items          int     `json:"items"`
	Once           int     `json:"once"`             // items that were done exactly once
	Twice          int     `json:"twice"`            // items that were done more than once
	Lost           int     `json:"lost"`             // items that were neither done nor reported as failed or unknown
	Failed         int     `json:"failed"`           // items that were reported as failed
	Unknown        int     `json:"unknown"`          // items that were reported as unknown
	UnknownNotSent int     `json:"unknown_not_sent"` // those that the server did not get
	Seconds        float64 `json:"seconds"`
}

func (r endsResult) missed() bool {
	return r.Twice+r.Lost > 0 || r.Measured == "stops" && r.UnknownNotSent > 0
}

func (r endsResult) String() string {
	return fmt.Sprintf("%s, %s: %d times, %d items: %d done once, %d twice, %d lost; %d failed, %d unknown, %d of them not sent; %.1f s",
		r.Measured, r.Mode, r.Ends, r.Items, r.Once, r.Twice, r.Lost, r.Failed, r.Unknown, r.UnknownNotSent, r.Seconds)
}

// measureEnds runs a job in a process, ends it at a random moment, and starts it again. The last
// process is not ended.
func measureEnds(c endsConfig, path string, random *rand.Rand) (result, error) {
	delay, items := 10*time.Millisecond, 500+120*c.Ends // more than are done before the last process
	if c.Stops {
		delay, items = 40*time.Millisecond, 500+40*c.Ends // some take longer than stopTimeout
	}
	s := newServer(5000, 0.01, delay, rand.New(rand.NewPCG(random.Uint64(), 0)))
	defer s.Close()
	start := time.Now()
	r := endsResult{Measured: "kills", Mode: c.Mode, Ends: c.Ends, Items: items}
	how := os.Kill
	if c.Stops {
		r.Measured, how = "stops", os.Interrupt
	}
	for end := 0; end <= c.Ends; end++ {
		child, err := startChild("-child", "ends", "-mode", c.Mode, "-url", s.URL, "-path", path, "-items", strconv.Itoa(r.Items))
		if err != nil {
			return nil, err
		}
		if end < c.Ends {
			time.Sleep(10*time.Millisecond + time.Duration(random.Int64N(int64(200*time.Millisecond))))
			_ = child.Process.Signal(how)
		}
		if err := child.Wait(); (err == nil) != (end == c.Ends) {
			return nil, fmt.Errorf("process %d ended: %v", end, err)
		}
	}
	failures, err := batch.Failures(path)
	if err != nil {
		return nil, err
	}
	r.Seconds = time.Since(start).Seconds()
	return r.count(s, failures), nil
}

// count fills in what became of the items.
func (r endsResult) count(s *server, failures []batch.ItemError) endsResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	reported := map[int]bool{}
	for _, f := range failures {
		reported[f.Index] = true
		if !errors.Is(f, batch.ErrInterrupted) {
			r.Failed++
			continue
		}
		r.Unknown++
		if !s.received[strconv.Itoa(f.Index)] {
			r.UnknownNotSent++
		}
	}
	for i := range r.Items {
		switch n := s.effects[strconv.Itoa(i)]; {
		case n > 1:
			r.Twice++
		case n == 1:
			r.Once++
		case !reported[i]:
			r.Lost++
		}
	}
	return r
}

const stopTimeout = 50 * time.Millisecond

// runEndsChild runs the job in this process, until it ends or is interrupted.
func runEndsChild(url, path, mode string, items int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	o := batch.Options{Checkpoint: path, StopTimeout: stopTimeout}
	client := heed.NewClient(nil)
	switch mode {
	case "plain":
		client = http.DefaultClient
	case "never":
		o.Repeat = batch.RepeatNever
	}
	report, err := batch.Run(ctx, numbers(items), func(ctx context.Context, item string) error {
		key := ""
		if mode == "keyed" || mode == "never" {
			key = batch.ItemFrom(ctx).IdempotencyKey
		}
		if mode == "background" {
			ctx = context.Background()
		}
		return postWithKey(ctx, client, url, item, key)
	}, o)
	switch {
	case errors.Is(err, context.Canceled):
		os.Exit(3)
	case err != nil && !errors.Is(err, batch.ErrItems):
		log.Fatalf("%+v: %v", report, err)
	}
}

// postWithKey does an item. An empty key means none.
func postWithKey(ctx context.Context, client *http.Client, url, item, key string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(item))
	if err != nil {
		return err
	}
	req.Header.Set("X-Number", item)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}
