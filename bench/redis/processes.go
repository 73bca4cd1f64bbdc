package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
)

const (
	processes = 4
	callers   = 16 // in each process
)

var sharedLimit = throttle.Limit{Count: 1000, Per: time.Second, Burst: 100}

// A claimCounts counts the claims of one process, or of all together. First and Last are
// the times of the first claim and of the last decision.
type claimCounts struct {
	Claims, Granted, Failed int64
	First, Last             time.Time
}

func (t *claimCounts) add(u claimCounts) {
	if t.Claims == 0 || u.First.Before(t.First) {
		t.First = u.First
	}
	if u.Last.After(t.Last) {
		t.Last = u.Last
	}
	t.Claims, t.Granted, t.Failed = t.Claims+u.Claims, t.Granted+u.Granted, t.Failed+u.Failed
}

type processesResult struct {
	Processes  int     `json:"processes"`
	Goroutines int     `json:"goroutines"` // in each process
	Seconds    float64 `json:"seconds"`
	Claims     int64   `json:"claims"`
	Granted    int64   `json:"granted"`
	Failed     int64   `json:"failed"`
	Ratio      float64 `json:"granted_ratio"` // units granted, divided by limit x time + burst
}

func (t processesResult) String() string {
	return fmt.Sprintf("%d processes x %d goroutines, %.2f s: %d of %d granted, %d failed, %.4f of limit x time + burst",
		t.Processes, t.Goroutines, t.Seconds, t.Granted, t.Claims, t.Failed, t.Ratio)
}

// measureProcesses runs real processes that claim units of one key as fast as possible.
func measureProcesses(o options, report func(any)) error {
	srv, err := startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	all := make([]*worker, processes)
	for i := range all {
		if all[i], err = startWorker(srv.addr, o.length); err != nil {
			return err
		}
	}
	var sum claimCounts
	for _, w := range all {
		err = errors.Join(err, w.stdin.Close()) // starts the workers
	}
	for _, w := range all {
		t, e := w.result()
		err = errors.Join(err, e)
		sum.add(t)
	}
	took := sum.Last.Sub(sum.First).Seconds()
	most := float64(sharedLimit.Count)/sharedLimit.Per.Seconds()*took + float64(sharedLimit.Burst)
	report(processesResult{processes, callers, took, sum.Claims, sum.Granted, sum.Failed, float64(sum.Granted) / most})
	return err
}

// A worker is a process started by this program.
type worker struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// startWorker starts a process and returns when it is ready.
func startWorker(addr string, length time.Duration) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: exec.Command(self, "-for", length.String(), addr)}
	w.cmd.Stderr = os.Stderr
	w.stdin, err = w.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.stdout = bufio.NewReader(stdout)
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	_, err = w.stdout.ReadString('\n')
	return w, err
}

func (w *worker) result() (t claimCounts, err error) {
	err = json.NewDecoder(w.stdout).Decode(&t)
	return t, errors.Join(err, w.cmd.Wait())
}

// work runs a worker process: it prints that it is ready, begins at the end of its standard
// input, and prints its counts.
func work(addr string, length time.Duration) {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	store := &throttleredis.Store{Client: client}
	limit := store.TokenBucket(sharedLimit)
	_, err := limit.Reserve(ctx, throttle.Claim{DryRun: true})
	check(err)
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	check(err)
	var sum claimCounts
	var mu sync.Mutex
	var wg sync.WaitGroup
	start := time.Now()
	for range callers {
		wg.Go(func() {
			t := claimUntil(ctx, limit, start, length)
			mu.Lock()
			defer mu.Unlock()
			sum.add(t)
		})
	}
	wg.Wait()
	check(json.NewEncoder(os.Stdout).Encode(sum))
}

// claimUntil makes claims until the time is over.
func claimUntil(ctx context.Context, l throttle.Limiter, start time.Time, length time.Duration) claimCounts {
	t := claimCounts{First: start}
	for time.Since(start) < length {
		d, err := l.Reserve(ctx, throttle.Claim{})
		t.Claims++
		switch {
		case err != nil:
			t.Failed++
		case d.OK:
			t.Granted++
		}
	}
	t.Last = time.Now()
	return t
}
