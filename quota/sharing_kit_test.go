package quota

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/internal/turns"
	"github.com/heed-go/heed/throttle"
)

// newExchange returns a fleet.Exchange over b. An external test sets it, because package fleet
// imports this one.
var newExchange func(b messageBus, secret []byte, clock throttle.Clock) Exchange

// A message is a fleet.Message, and a messageBus is a fleet.Bus.
type (
	message struct {
		Account, Quota string
		Content        string
		Keep, Age      time.Duration
	}
	messageBus interface {
		Publish(m message)
		Subscribe(ctx context.Context, receive func(message))
		Fetch(account string)
	}
)

// A bus is a fleet.Bus between the Trackers of a test. Each subscriber receives copies(m) copies of
// message m, each one delay later than the one before. It must be used in a bubble.
type bus struct {
	delay       time.Duration
	copies      func(m message) int // nil: one
	mu          sync.Mutex
	subscribers []func(message)
	kept        map[string]map[string]keptMessage
	published   []message
	other       Exchange // of publish
}

type keptMessage struct {
	message
	at time.Time
}

func (b *bus) Publish(m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published = append(b.published, m)
	if m.Keep > 0 {
		if b.kept == nil {
			b.kept = make(map[string]map[string]keptMessage)
		}
		if b.kept[m.Account] == nil {
			b.kept[m.Account] = make(map[string]keptMessage)
		}
		b.kept[m.Account][m.Quota] = keptMessage{m, time.Now()}
	}
	for _, receive := range b.subscribers {
		n := 1
		if b.copies != nil {
			n = b.copies(m)
		}
		for i := range n {
			later(b.delay*time.Duration(i+1), func() { receive(m) })
		}
	}
}

// later calls f on another goroutine after d.
func later(d time.Duration, f func()) {
	if d == 0 { // the race detector of Go 1.26 can crash on timers of a bubble that have expired
		go f()
		return
	}
	time.AfterFunc(d, f)
}

// Subscribe ignores its context: a bus has no end.
func (b *bus) Subscribe(_ context.Context, receive func(message)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subscribers = append(b.subscribers, receive)
}

func (b *bus) Fetch(account string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := []message{}
	for _, k := range b.kept[account] {
		if k.Age = time.Since(k.at); k.Age < k.Keep {
			found = append(found, k.message)
		}
	}
	found = append(found, message{Account: account})
	later(2*b.delay, func() { // of the call, and of the messages
		for _, m := range found {
			b.deliver(m)
		}
	})
}

// deliver passes a message to all subscribers, now.
func (b *bus) deliver(m message) {
	b.mu.Lock()
	subscribers := append([]func(message){}, b.subscribers...)
	b.mu.Unlock()
	for _, receive := range subscribers {
		receive(m)
	}
}

// publish publishes u as another process with the secret, of the account of users in tr.
func (b *bus) publish(t *testing.T, tr *Tracker, u Update) {
	if b.other == nil {
		b.other = newExchange(b, secret, nil)
	}
	u.Account = tr.endpointOf(request(t, users)).id
	b.other.Publish(u)
	synctest.Wait()
}

// A skewed clock has an error.
type skewed time.Duration

func (s skewed) Now() time.Time                         { return time.Now().Add(time.Duration(s)) }
func (s skewed) After(d time.Duration) <-chan time.Time { return time.After(d) }

var secret = []byte("of the fleet")

// trackers returns n Trackers that share over b. The error of the clock of each is larger by skew
// than that of the one before.
func trackers(b messageBus, n int, skew time.Duration) (all []*Tracker) {
	for i := range n {
		tr := seeded(uint64(i))
		if skew != 0 {
			tr.Clock = skewed(time.Duration(i) * skew)
		}
		tr.Exchange = newExchange(b, secret, tr.Clock)
		all = append(all, tr)
	}
	return all
}

// An arrival is one request at a server that several processes call.
type arrival struct {
	at       time.Duration
	rejected bool
}

// watch makes s safe for several processes and records what arrives.
func watch(s server, log *[]arrival) server {
	var mu sync.Mutex
	start := time.Now()
	return func(now time.Time) (int, http.Header) {
		mu.Lock()
		defer mu.Unlock()
		status, h := s(now)
		*log = append(*log, arrival{now.Sub(start), status != 200})
		return status, h
	}
}

// alignedWindow serves limit per window; windows begin at multiples of per. It
// states what is left if hints is set, and otherwise only rejects.
func alignedWindow(limit int, per time.Duration, hints bool, retryAfter bool) server {
	start, window, used := time.Now(), time.Duration(-1), 0
	return func(now time.Time) (int, http.Header) {
		if w := now.Sub(start) / per; w != window {
			window, used = w, 0
		}
		rest := per - now.Sub(start)%per
		seconds := strconv.Itoa(int((rest + time.Second - 1) / time.Second))
		used++
		h := http.Header{}
		if hints {
			h.Set("RateLimit-Limit", strconv.Itoa(limit))
			h.Set("RateLimit-Remaining", strconv.Itoa(max(limit-used, 0)))
			h.Set("RateLimit-Reset", seconds)
		}
		if used <= limit {
			return 200, h
		}
		if retryAfter {
			h.Set("Retry-After", seconds)
		}
		return 429, h
	}
}

// playAll makes n calls from c goroutines in each process, and returns the results.
func playAll(t *testing.T, all []*Tracker, s server, n, c int, rtt time.Duration) (jobs []job) {
	g, each := turns.New(1), make([]*job, len(all))
	for i, tr := range all {
		each[i] = begin(t, g, tr, s, n, c, rtt, time.Time{})
	}
	g.Wait()
	for _, j := range each {
		jobs = append(jobs, *j)
	}
	return jobs
}

// rejectedAfter counts the rejections in the spans that begin with one: own are those of the first
// moment, when other processes could not know of it yet, and known are the rest.
func rejectedAfter(log []arrival, span, moment time.Duration) (own, known int) {
	first := -span
	for _, a := range log {
		switch {
		case !a.rejected:
		case a.at-first >= span:
			first = a.at
			own++
		case a.at-first > moment:
			known++
		default:
			own++
		}
	}
	return own, known
}

func claim(t *testing.T, tr *Tracker, url string) throttle.Decision {
	d, err := tr.Demand(request(t, url)).Limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }
