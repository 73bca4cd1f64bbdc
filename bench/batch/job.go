package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
)

type jobConfig struct {
	Items, Workers, Kills int
	Rate                  int64
}

// A jobResult is what a job that was killed did.
type jobResult struct {
	Measured  string  `json:"measured"`
	Items     int     `json:"items"`
	Workers   int     `json:"workers"`
	Kills     int     `json:"kills"`
	Once      int     `json:"once"`      // items that were done exactly once
	Twice     int     `json:"twice"`     // items that were done more than once
	Missing   int     `json:"missing"`   // items that were not done
	Requests  int     `json:"requests"`  // including rejected ones
	Throttled int     `json:"throttled"` // requests that the server rejected because of its limit
	Faults    int     `json:"faults"`    // requests that failed
	Ideal     float64 `json:"ideal"`     // seconds for Items at the rate of the server
	Seconds   float64 `json:"seconds"`
	Ratio     float64 `json:"ratio"`
}

const maxRatio = 1.1

func (r jobResult) missed() bool { return r.Once != r.Items || r.Ratio > maxRatio }

func (r jobResult) String() string {
	return fmt.Sprintf("job: %d items, %d workers, killed %d times: %d done once, %d twice, %d not; %d requests, %d throttled, %d faults; %.2f s, ideal %.2f s: %.3f times",
		r.Items, r.Workers, r.Kills, r.Once, r.Twice, r.Missing, r.Requests, r.Throttled, r.Faults, r.Seconds, r.Ideal, r.Ratio)
}

// measureJob runs the job in a process, kills it, and starts it again until it ends.
func measureJob(c jobConfig, path string, random *rand.Rand) (result, error) {
	s := newServer(c.Rate, 0.01, 20*time.Millisecond, rand.New(rand.NewPCG(random.Uint64(), 0)))
	defer s.Close()
	start := time.Now()
	for kill := 1; kill <= c.Kills; kill++ {
		at := c.Items*kill/(c.Kills+1) + random.IntN(c.Items/10+1)
		if err := s.killJob(c, path, at); err != nil {
			return nil, err
		}
	}
	child, err := startChild("-child", "job", "-url", s.URL, "-path", path, "-items", strconv.Itoa(c.Items), "-workers", strconv.Itoa(c.Workers))
	if err == nil {
		err = child.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("the last process: %w", err)
	}
	took := time.Since(start).Seconds()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := jobResult{Measured: "job", Items: c.Items, Workers: c.Workers, Kills: c.Kills, Requests: s.requests, Throttled: s.requests - s.admitted, Faults: s.failed, Ideal: float64(c.Items) / float64(c.Rate), Seconds: took}
	r.Ratio = r.Seconds / r.Ideal
	for i := range c.Items {
		switch n := s.effects[strconv.Itoa(i)]; {
		case n == 0:
			r.Missing++
		case n == 1:
			r.Once++
		default:
			r.Twice++
		}
	}
	return r, nil
}

// killJob starts the job, and kills it when the server has done a number of items.
func (s *server) killJob(c jobConfig, path string, at int) error {
	child, err := startChild("-child", "job", "-url", s.URL, "-path", path, "-items", strconv.Itoa(c.Items), "-workers", strconv.Itoa(c.Workers))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for {
		select {
		case <-s.changed:
			if s.done() < at {
				continue
			}
			_ = child.Process.Kill()
			if err := <-ended; err == nil {
				return errors.New("a process ended before it was killed")
			}
			return nil
		case err := <-ended:
			return fmt.Errorf("a process ended before it was killed: %v", err)
		}
	}
}

// startChild starts this program again.
func startChild(args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	child := exec.Command(self, args...)
	child.Stderr = os.Stderr
	return child, child.Start()
}

// runJobChild runs the job in this process.
func runJobChild(url, path string, c jobConfig) {
	client := heed.NewClient(&heed.Transport{Base: &http.Transport{MaxIdleConnsPerHost: c.Workers, MaxIdleConns: c.Workers}})
	// Each request has the key of its item, so all of them may be repeated. RepeatSafe would not repeat an item whose
	// process was killed before it recorded a request; modes.go measures that.
	report, err := batch.Run(context.Background(), numbers(c.Items), func(ctx context.Context, item string) error {
		return post(ctx, client, url, item)
	}, batch.Options{Workers: c.Workers, Total: c.Items, Checkpoint: path, Job: "bench", Repeat: batch.RepeatAlways})
	if err != nil {
		log.Fatalf("%+v: %v", report, err)
	}
}

// post does an item with its idempotency key.
func post(ctx context.Context, client *http.Client, url, item string) error {
	return postWithKey(ctx, client, url, item, batch.ItemFrom(ctx).IdempotencyKey)
}

// numbers returns the items of the job.
func numbers(n int) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range n {
			if !yield(strconv.Itoa(i)) {
				return
			}
		}
	}
}
