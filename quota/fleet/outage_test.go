package fleet

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle/queue"
)

// A slowBus is a LocalBus whose messages arrive after a delay.
type slowBus struct {
	LocalBus
	delay     time.Duration
	mu        sync.Mutex
	published int
}

func (b *slowBus) Publish(m Message) {
	b.mu.Lock()
	b.published++
	b.mu.Unlock()
	time.AfterFunc(b.delay, func() { b.LocalBus.Publish(m) })
}

// An outage is a server that rejects everything for a time, and the processes that call it.
type outage struct {
	processes, workers int
	latency            time.Duration
	begin, end, stop   time.Duration // the server rejects everything from begin to end
	status             int
	retryAfter         func(left time.Duration) string // for the time until end; nil: it states nothing
	alone              bool                            // the processes share nothing

	mu        sync.Mutex
	start     time.Time
	arrivals  []time.Duration
	published int
}

// run runs all processes. Each worker makes calls with a mean pause of a second. A call waits for the server for at most
// 3 s, and if it is rejected, it is sent up to four times, after what the response stated or a backoff.
func (o *outage) run(t *testing.T) {
	bus := &slowBus{delay: 5 * time.Millisecond}
	o.start = time.Now()
	var all sync.WaitGroup
	for p := range o.processes {
		tr := &quota.Tracker{Rand: rand.New(rand.NewPCG(uint64(p), 1)).Float64}
		if !o.alone {
			tr.Exchange = &Exchange{Bus: bus, Secret: secret}
		}
		w := new(queue.Queue)
		tr.Notify(w)
		for n := range o.workers {
			all.Go(func() { o.work(t.Context(), tr, w, rand.New(rand.NewPCG(uint64(p), uint64(n+2)))) })
		}
		defer tr.Close()
	}
	all.Wait()
	o.published = bus.published
}

func (o *outage) work(ctx context.Context, tr *quota.Tracker, w *queue.Queue, r *rand.Rand) {
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/", nil)
	for {
		time.Sleep(time.Duration(r.ExpFloat64() * float64(time.Second)))
		for attempt := range 4 {
			if time.Since(o.start) > o.stop {
				return
			}
			callCtx, cancel := context.WithTimeout(ctx, 3*time.Second)
			var ticket queue.Ticket
			ticket.Demands = append(ticket.Demands[:0], tr.Demand(req))
			err := w.Wait(callCtx, &ticket)
			cancel()
			if err != nil {
				break // the call has failed
			}
			resp, wait := o.send(r)
			f := tr.Feedback(req, ticket.Demands[0], resp, nil, time.Now(), nil)
			f.Repeated = attempt > 0
			w.Report(ctx, &ticket, f)
			if resp.StatusCode == http.StatusOK {
				break
			}
			jitter := time.Duration(r.Float64() * float64(time.Second/2<<attempt)) // as Transport does by default
			time.Sleep(max(wait+jitter, 2*jitter))
		}
	}
}

// send returns the response of the server to a request that is sent now, and the wait that it states.
func (o *outage) send(r *rand.Rand) (*http.Response, time.Duration) {
	time.Sleep(time.Duration((.5 + r.Float64()) * float64(o.latency)))
	at := time.Since(o.start)
	o.mu.Lock()
	o.arrivals = append(o.arrivals, at)
	o.mu.Unlock()
	resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(""))}
	if at < o.begin || at >= o.end {
		return resp, 0
	}
	resp.StatusCode = o.status
	if o.retryAfter == nil {
		return resp, 0
	}
	resp.Header.Set("Retry-After", o.retryAfter(o.end-at))
	wait, _ := time.ParseDuration(resp.Header.Get("Retry-After") + "s")
	return resp, wait
}

// between returns how many requests have arrived in [from, to). The arrivals are sorted.
func (o *outage) between(from, to time.Duration) (n int) {
	begin, _ := slices.BinarySearch(o.arrivals, from)
	end, _ := slices.BinarySearch(o.arrivals, to)
	return end - begin
}

// highest returns the most requests that have arrived in a second that begins in [from, to).
func (o *outage) highest(from, to time.Duration) (n int) {
	for at := from; at < to; at += 50 * time.Millisecond {
		n = max(n, o.between(at, at+time.Second))
	}
	return n
}

// right returns the Retry-After of a server that knows when its outage ends.
func right(left time.Duration) string { return strconv.Itoa(int(left/time.Second) + 1) }

// While a server rejects everything, the processes together send it few tests: as many as one process, and those that
// are sent before the test of another is known. Without an Exchange each sends as many. After the outage, the requests
// in any second are never more than one and a half times those in a second before.
func TestExchange_oneProcessTestsForAll(t *testing.T) {
	for name, tt := range map[string]struct {
		status     int
		retryAfter func(left time.Duration) string
		alone      bool
		many       bool          // 1,000 processes with a caller each, and not 60 with six
		tests      [2]int        // at least and at most, in the last 50 of 60 seconds
		accepted   time.Duration // when the first request after the outage arrives at the latest
	}{
		"429":                    {429, nil, false, false, [2]int{2, 15}, 40 * time.Second},
		"429, the right time":    {429, right, false, false, [2]int{2, 15}, 2 * time.Second},
		"429, always a minute":   {429, func(time.Duration) string { return "60" }, false, false, [2]int{2, 15}, 40 * time.Second},
		"503, the right time":    {503, right, false, false, [2]int{15, 60}, 2 * time.Second},
		"503, too early":         {503, func(time.Duration) string { return "2" }, false, false, [2]int{15, 120}, 3 * time.Second},
		"429, each for itself":   {429, nil, true, false, [2]int{200, 2000}, 40 * time.Second},
		"1,000, 429":             {429, nil, false, true, [2]int{2, 15}, 40 * time.Second},
		"1,000, the right time":  {503, right, false, true, [2]int{0, 60}, 2 * time.Second},
		"1,000, always a minute": {429, func(time.Duration) string { return "60" }, false, true, [2]int{0, 15}, 40 * time.Second},
	} {
		if testing.Short() && name != "429, the right time" && !tt.alone {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			o := &outage{processes: 60, workers: 6, latency: 50 * time.Millisecond, status: tt.status, retryAfter: tt.retryAfter, alone: tt.alone}
			first10, messages := 360+10, 300 // each caller once
			if tt.many {                     // where no time is stated, each process needs four rejections
				o.processes, o.workers = 1000, 1
				first10, messages = 5*1000, 1200
			}
			o.begin, o.end, o.stop = 10*time.Second, 70*time.Second, 115*time.Second
			o.run(t)
			slices.Sort(o.arrivals)
			before := o.between(2*time.Second, o.begin) / 8
			early, tests := o.between(o.begin, o.begin+10*time.Second), o.between(o.begin+10*time.Second, o.end)
			first := o.arrivals[o.between(0, o.end)] - o.end
			after := o.highest(o.end, o.stop-time.Second)
			t.Logf("%s: %d/s before, %d in the first 10 s, %d in the other 50 s, the first after %v, then at most %d/s; %d messages", name, before, early, tests, first, after, o.published)
			require.GreaterOrEqual(t, tests, tt.tests[0], name)
			require.LessOrEqual(t, tests, tt.tests[1], name)
			require.LessOrEqual(t, first, tt.accepted, name)
			require.LessOrEqual(t, after, before*3/2, name)
			if tt.alone {
				return
			}
			require.LessOrEqual(t, early, first10, name)
			require.LessOrEqual(t, o.published, messages, name)
		})
	}
}
