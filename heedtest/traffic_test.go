package heedtest_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/scorecard"
)

var update = flag.Bool("update", false, "write testdata/traffic.txt")

// TestRun_traffic compares what each check sends, when, and how the server responds, with
// testdata/traffic.txt, for a client without retries and for one that retries at exact times.
// A change of the file means that marks cannot be compared with those of earlier versions. go
// test -run TestRun_traffic -update writes it.
func TestRun_traffic(t *testing.T) {
	clients := []struct {
		name      string
		retries   bool
		newClient func(base http.RoundTripper) http.RoundTripper
	}{
		{"a client without retries", false, func(base http.RoundTripper) http.RoundTripper { return base }},
		{"a client that retries at exact times", true, func(base http.RoundTripper) http.RoundTripper {
			return &retrier{base: base, synchronous: true}
		}},
	}
	var got strings.Builder
	var skipped []string // the beginnings of the sections that are not compared
	for _, c := range clients {
		for _, check := range scorecard.Names() {
			if check == "response-body" || c.retries && check == "dialects" {
				continue // random: how much a client gets before a reset, and the order of requests at one instant
			}
			if testing.Short() && !*update && check == "healthy-server" && !c.retries { // see checksIfShort
				skipped = append(skipped, fmt.Sprintf("# %s\n%s:", c.name, check))
				continue
			}
			x := &traffic{}
			m := scorecard.Run(t, func(base http.RoundTripper) http.RoundTripper { return c.newClient(x.trial(base)) }, check)[0]
			fmt.Fprintf(&got, "# %s\n%v\n%s\n", c.name, m, x)
		}
	}
	const file = "testdata/traffic.txt"
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got.String()), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, withoutSections(string(want), skipped), got.String())
}

// withoutSections returns the text without its sections with the given beginnings, of which there must be one each.
func withoutSections(text string, beginnings []string) string {
	for _, b := range beginnings {
		before, rest, _ := strings.Cut(text, b)
		_, after, _ := strings.Cut(rest, "\n# ")
		text = before + "# " + after
	}
	return text
}

// traffic records what the trials of a check send and receive.
type traffic struct {
	mu     sync.Mutex
	trials []*trafficOfTrial
}

type trafficOfTrial struct {
	next  http.RoundTripper
	start time.Time // of the first request

	mu     sync.Mutex
	events map[string]*event // by their text
}

// An event is what occurs in a trial, once or several times.
type event struct {
	n           int
	first, last time.Duration // since the start
	sum         time.Duration // of the times of all
}

func (x *traffic) trial(base http.RoundTripper) http.RoundTripper {
	x.mu.Lock()
	defer x.mu.Unlock()
	one := &trafficOfTrial{next: base, events: map[string]*event{}}
	x.trials = append(x.trials, one)
	return one
}

// String returns the trials in the order in which they ran, each with its events: the order of
// those at the same instant is random.
func (x *traffic) String() string {
	var b strings.Builder
	for i, one := range x.trials {
		fmt.Fprintf(&b, "trial %d", i+1)
		one.mu.Lock()
		if !one.start.IsZero() {
			fmt.Fprintf(&b, " at %s", one.start.UTC().Format(time.RFC3339Nano))
		}
		b.WriteByte('\n')
		for _, text := range slices.Sorted(maps.Keys(one.events)) {
			e := one.events[text]
			fmt.Fprintf(&b, "  %s: %d at %v", text, e.n, e.first)
			if e.n > 1 {
				fmt.Fprintf(&b, " to %v, mean %v", e.last, e.sum/time.Duration(e.n))
			}
			b.WriteByte('\n')
		}
		one.mu.Unlock()
	}
	return b.String()
}

func (x *trafficOfTrial) add(at time.Time, format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	text, since := fmt.Sprintf(format, args...), at.Sub(x.start)
	e := x.events[text]
	if e == nil {
		e = &event{first: since}
		x.events[text] = e
	}
	e.n++
	e.last = since
	e.sum += since
}

// RoundTrip implements http.RoundTripper.
func (x *trafficOfTrial) RoundTrip(r *http.Request) (*http.Response, error) {
	now := time.Now()
	x.mu.Lock()
	if x.start.IsZero() {
		x.start = now
	}
	x.mu.Unlock()
	sent := fmt.Sprintf("%s %s, %d bytes", r.Method, r.URL.Path, r.ContentLength)
	if deadline, ok := r.Context().Deadline(); ok {
		sent += fmt.Sprintf(", deadline in %v", deadline.Sub(now))
	}
	x.add(now, "%s", sent)
	resp, err := x.next.RoundTrip(r)
	if err != nil {
		x.add(time.Now(), "error of %s", r.Method)
		return nil, err
	}
	var fields bytes.Buffer
	_ = resp.Header.WriteSubset(&fields, map[string]bool{"Date": true})
	x.add(time.Now(), "response %d: %s", resp.StatusCode, strings.ReplaceAll(strings.TrimSpace(fields.String()), "\r\n", ", "))
	resp.Body = &trafficBody{ReadCloser: resp.Body, trial: x}
	return resp, nil
}

// CloseIdleConnections closes the idle connections of the transport.
func (x *trafficOfTrial) CloseIdleConnections() {
	x.next.(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

// A trafficBody records how much was read when it is closed.
type trafficBody struct {
	io.ReadCloser
	trial *trafficOfTrial
	n     int
	err   error
	once  sync.Once
}

// Read implements io.Reader.
func (b *trafficBody) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	b.n += n
	b.err = err
	return n, err
}

// Close implements io.Closer.
func (b *trafficBody) Close() error {
	b.once.Do(func() {
		if b.err != io.EOF {
			b.trial.add(time.Now(), "body closed after %d0 bytes or more", b.n/10) // some may come at the instant of a deadline
		} else {
			b.trial.add(time.Now(), "body read and closed after %d bytes", b.n)
		}
	})
	return b.ReadCloser.Close()
}
