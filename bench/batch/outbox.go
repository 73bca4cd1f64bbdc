package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/batch"
)

type outboxConfig struct{ Kills int }

// An outboxResult is what an Outbox did whose process was killed.
type outboxResult struct {
	Measured     string  `json:"measured"`
	Kills        int     `json:"kills"`
	Accepted     int     `json:"accepted"`      // requests that Submit accepted
	Lost         int     `json:"lost"`          // accepted requests that were neither done nor reported as unknown
	UnkeyedTwice int     `json:"unkeyed_twice"` // requests without an Idempotency-Key that were sent more than once
	Twice        int     `json:"twice"`         // requests that were done more than once
	Unkeyed      int     `json:"unkeyed"`       // accepted requests without an Idempotency-Key
	Unknown      int     `json:"unknown"`       // requests that were reported as unknown
	Repeated     int     `json:"repeated"`      // admitted requests beyond one for each accepted request
	Requests     int     `json:"requests"`      // including rejected ones
	Faults       int     `json:"faults"`        // requests that failed
	Seconds      float64 `json:"seconds"`
}

func (r outboxResult) missed() bool { return r.Lost+r.UnkeyedTwice+r.Twice > 0 }

func (r outboxResult) String() string {
	return fmt.Sprintf("outbox: killed %d times: %d requests accepted, %d lost, %d sent twice without Idempotency-Key (of %d), %d done twice; %d unknown, %d repeated; %d requests, %d faults; %.1f s",
		r.Kills, r.Accepted, r.Lost, r.UnkeyedTwice, r.Unkeyed, r.Twice, r.Unknown, r.Repeated, r.Requests, r.Faults, r.Seconds)
}

// measureOutbox starts a process with an Outbox again and again, and kills it at a random
// moment. The last process is not killed.
func measureOutbox(c outboxConfig, path string, random *rand.Rand) (result, error) {
	s := newServer(400, 0.05, 10*time.Millisecond, rand.New(rand.NewPCG(random.Uint64(), 0)))
	defer s.Close()
	start := time.Now()
	accepted, unknown := map[string]bool{}, map[string]bool{}
	submitted := 0
	for kill := 0; kill <= c.Kills; kill++ {
		first := submitted
		if kill == c.Kills {
			first = -1
		}
		life := time.Duration(random.Int64N(int64(300 * time.Millisecond)))
		if err := runOutbox(s.URL, path, first, life, accepted, unknown); err != nil {
			return nil, err
		}
		submitted += submitters * perSubmitter
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := outboxResult{Measured: "outbox", Kills: c.Kills, Accepted: len(accepted), Unknown: len(unknown), Requests: s.requests, Faults: s.failed, Repeated: s.admitted - len(accepted), Seconds: time.Since(start).Seconds()}
	for body := range accepted {
		if s.effects[body] == 0 && !unknown[body] {
			r.Lost++
		}
		if isUnkeyed(body) {
			r.Unkeyed++
		}
	}
	for _, n := range s.unkeyed {
		if n > 1 {
			r.UnkeyedTwice++
		}
	}
	for _, n := range s.effects {
		if n > 1 {
			r.Twice++
		}
	}
	return r, nil
}

// runOutbox runs a process that submits requests from number first on, and kills it after a
// time. If first is -1, the process sends what is left and ends.
func runOutbox(url, path string, first int, life time.Duration, accepted, unknown map[string]bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(self, "-child", "outbox", "-url", url, "-path", path, "-first", strconv.Itoa(first))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		return err
	}
	if err := child.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		switch word, number, _ := strings.Cut(lines.Text(), " "); word {
		case "open": // the random time begins when the file is read, so that starts do not count
			if first >= 0 {
				time.AfterFunc(life, func() { _ = child.Process.Kill() })
			}
		case "accepted":
			accepted[number] = true
		case "unknown":
			unknown[number] = true
		}
	}
	if err := child.Wait(); err != nil && first < 0 {
		return fmt.Errorf("the last process: %w", err)
	}
	return lines.Err()
}

// isUnkeyed reports whether the request with this body must have no Idempotency-Key.
func isUnkeyed(number string) bool {
	n, err := strconv.Atoi(number)
	return err == nil && n%3 == 0
}

// runOutboxChild submits requests from number first on until the process is killed. If
// first is negative, it waits until the Outbox is empty.
func runOutboxChild(url, path string, first int) {
	o, err := batch.OpenOutbox(batch.OutboxConfig{
		Path:    path,
		Client:  heed.NewClient(nil),
		Backoff: backoff.Constant(10 * time.Millisecond), // more requests in the same time
		IdempotencyKey: func(r *http.Request) string {
			if r.Header.Get("X-Unkeyed") != "" {
				return ""
			}
			return "key-" + r.Header.Get("X-Number")
		},
		Done: func(d batch.Delivery) batch.Action {
			switch number := d.Request.Header.Get("X-Number"); {
			case errors.Is(d.Err, batch.ErrInterrupted):
				fmt.Println("unknown", number)
			case d.Err != nil:
				log.Printf("request %s: %v", number, d.Err)
			}
			return batch.Leave
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("open")
	if first < 0 {
		drain(o)
		return
	}
	for worker := range submitters {
		go func() {
			for i := range perSubmitter {
				submit(o, url, strconv.Itoa(first+worker*perSubmitter+i))
			}
		}()
	}
	select {} // until the process is killed
}

const (
	submitters   = 4
	perSubmitter = 8 // requests for each process
)

// submit submits a request and prints that it was accepted.
func submit(o *batch.Outbox, url, number string) {
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(number+strings.Repeat(" ", 1<<10)))
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("X-Number", number)
	if isUnkeyed(number) {
		req.Header.Set("X-Unkeyed", "1")
	}
	if _, err := o.Submit(req); err != nil {
		log.Fatal(err)
	}
	fmt.Println("accepted", number)
}

// drain waits until the Outbox is empty, and closes it.
func drain(o *batch.Outbox) {
	if err := o.Drain(context.Background()); err != nil {
		log.Fatal(err)
	}
	left, err := o.Close(context.Background())
	if err != nil || len(left) > 0 {
		log.Fatalf("%d requests are left: %v", len(left), err)
	}
}
