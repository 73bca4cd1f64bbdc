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
	"strconv"
	"strings"
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

// A sharing is several processes that share one limit.
type sharing struct {
	Mode   throttleredis.Mode
	Limit  throttle.Limit
	Demand float64 // of all processes, in claims per second: more than the limit grants
	Skew   float64 // demand of the first process, as a multiple of that of each other one
}

var sharings = func() (all []sharing) {
	for _, mode := range []throttleredis.Mode{throttleredis.Grouped, throttleredis.Leased} {
		for _, skew := range []float64{1, 10} {
			all = append(all, sharing{mode, throttle.PerSecond(1000), 2000, skew}, sharing{mode, throttle.PerMinute(100), 100, skew})
		}
	}
	return all
}()

// demand returns the claims per second of a process.
func (s sharing) demand(process int) float64 {
	part := 1 / (s.Skew + processes - 1)
	if process == 0 {
		part *= s.Skew
	}
	return part * s.Demand
}

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
	Mode      string  `json:"mode"`
	Limit     string  `json:"limit"`
	Processes int     `json:"processes"`
	Skew      float64 `json:"skew"`
	Seconds   float64 `json:"seconds"`
	Claims    int64   `json:"claims"`
	Granted   int64   `json:"granted"`
	Failed    int64   `json:"failed"`
	Ratio     float64 `json:"granted_ratio"`  // units granted, divided by limit x time + burst
	Commands  float64 `json:"commands_ratio"` // scripts that Redis ran, for each claim
}

func (t processesResult) String() string {
	return fmt.Sprintf("%-7s, %s, %d processes, the first with %2.0f times the demand of each other, %.2f s: %d of %d granted, %d failed, %.4f of limit x time + burst, %.3f scripts for each claim",
		t.Mode, t.Limit, t.Processes, t.Skew, t.Seconds, t.Granted, t.Claims, t.Failed, t.Ratio, t.Commands)
}

// measureProcesses runs real processes that claim units of one key, together more than the limit grants.
func measureProcesses(o options, report func(any)) error {
	for i, s := range sharings {
		if err := measureSharing(o, i, s, report); err != nil {
			return err
		}
	}
	return nil
}

func measureSharing(o options, number int, s sharing, report func(any)) error {
	srv, err := startServer()
	if err != nil {
		return err
	}
	defer srv.stop()
	all := make([]*worker, processes)
	for i := range all {
		if all[i], err = startWorker(srv.addr, o.length, number, i); err != nil {
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
	most := float64(s.Limit.Count)/s.Limit.Per.Seconds()*took + float64(s.Limit.Count)
	c := srv.client()
	defer c.Close()
	mode := map[throttleredis.Mode]string{throttleredis.Grouped: "Grouped", throttleredis.Leased: "Leased"}[s.Mode]
	report(processesResult{mode, s.Limit.String(), processes, s.Skew, took, sum.Claims, sum.Granted, sum.Failed, float64(sum.Granted) / most, scriptCalls(c) / float64(sum.Claims)})
	return err
}

// scriptCalls returns the number of scripts that a server has run.
func scriptCalls(c *redis.Client) float64 {
	for line := range strings.Lines(c.Info(context.Background(), "commandstats").Val()) {
		if text, ok := strings.CutPrefix(line, "cmdstat_evalsha:calls="); ok {
			n, _, _ := strings.Cut(text, ",")
			calls, _ := strconv.ParseFloat(n, 64)
			return calls
		}
	}
	return 0
}

// A worker is a process started by this program.
type worker struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// startWorker starts a process and returns when it is ready.
func startWorker(addr string, length time.Duration, sharing, process int) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: exec.Command(self, "-for", length.String(), addr, strconv.Itoa(sharing), strconv.Itoa(process))}
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
func work(addr string, length time.Duration, s sharing, process int) {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	store := &throttleredis.Store{Client: client, Mode: s.Mode}
	limit := store.TokenBucket(s.Limit)
	_, err := limit.Reserve(ctx, throttle.Claim{DryRun: true})
	check(err)
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	check(err)
	var sum claimCounts
	var mu sync.Mutex
	var wg sync.WaitGroup
	start, interval := time.Now(), time.Duration(float64(time.Second)*callers/s.demand(process))
	for i := range callers {
		wg.Go(func() {
			t := claimUntil(ctx, limit, start.Add(interval*time.Duration(i)/callers), interval, start.Add(length))
			mu.Lock()
			defer mu.Unlock()
			sum.add(t)
		})
	}
	wg.Wait()
	sum.First, sum.Last = start, time.Now()
	check(json.NewEncoder(os.Stdout).Encode(sum))
}

// claimUntil makes claims at regular intervals until a time.
func claimUntil(ctx context.Context, l throttle.Limiter, next time.Time, interval time.Duration, end time.Time) (t claimCounts) {
	for ; next.Before(end); next = next.Add(interval) {
		time.Sleep(time.Until(next))
		d, err := l.Reserve(ctx, throttle.Claim{})
		t.Claims++
		switch {
		case err != nil:
			t.Failed++
		case d.OK:
			t.Granted++
		}
	}
	return t
}
