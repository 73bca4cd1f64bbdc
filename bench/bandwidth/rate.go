package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"
)

// A work is one direction, paced by one side.
type work struct {
	name             string
	byServer, upload bool
}

var works = []work{
	{"client, upload", false, true},
	{"client, download", false, false},
	{"server, read", true, true},
	{"server, write", true, false},
}

// A link is a server and a client of it, of which one paces.
type link struct {
	server   *httptest.Server
	client   *http.Client
	received chan int64 // bytes of an upload that arrived
}

// newLink returns a link for w. The handler of an upload reads until end, that of a download
// writes as long as the client reads.
func newLink(w work, c contender, perSecond int64, end *time.Time) *link {
	l := &link{received: make(chan int64, 1)}
	h := http.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.upload {
			l.received <- readAll(r.Body, 32<<10, *end)
			return
		}
		_, _ = io.Copy(rw, struct{ io.Reader }{zeros{r.Context()}})
	}))
	if w.byServer && c.server != nil {
		h = c.server(h, perSecond, w.upload)
	}
	l.server = httptest.NewServer(h)
	base := http.RoundTripper(&http.Transport{})
	if !w.byServer && c.client != nil {
		base = c.client(base, perSecond, w.upload)
	}
	l.client = &http.Client{Transport: base}
	return l
}

func (l *link) close() {
	l.client.CloseIdleConnections()
	l.server.CloseClientConnections()
	l.server.Close()
}

// transfer sends one stream through l until end, and returns the bytes that arrived at the
// side that receives.
func (l *link) transfer(upload bool, size int, end time.Time) (int64, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if upload {
		body, stop := context.WithDeadline(ctx, end.Add(100*time.Millisecond))
		defer stop()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.server.URL, zeros{body})
		if err != nil {
			return 0, err
		}
		resp, err := l.client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return <-l.received, nil // the server stops reading, which can fail the request
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.server.URL, nil)
	if err != nil {
		return 0, err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n := readAll(resp.Body, size, end)
	cancel()
	return n, nil
}

// rateRounds is how often each rate is measured. The median counts, because a machine that
// stops for longer than the burst lasts stops the stream.
const rateRounds = 3

// measureRate measures each work, of all contenders at the same time.
func measureRate(perSecond int64, length time.Duration, show func(row)) error {
	for _, w := range works {
		rates := make([][]float64, len(contenders))
		for range rateRounds {
			got, err := transferAll(w, perSecond, length)
			if err != nil {
				return err
			}
			for i, n := range got {
				rates[i] = append(rates[i], float64(n)/length.Seconds())
			}
		}
		for i, c := range contenders {
			rate := median(rates[i])
			show(row{Measurement: "rate", Work: w.name, Contender: c.name, MBPerSecond: rate / 1e6, Off: 100 * (rate/float64(perSecond) - 1)})
		}
	}
	return nil
}

// transferAll runs w once with each contender, and returns the bytes that arrived.
func transferAll(w work, perSecond int64, length time.Duration) ([]int64, error) {
	got, errs := make([]int64, len(contenders)), make([]error, len(contenders))
	var all sync.WaitGroup
	for i, c := range contenders {
		all.Go(func() {
			var end time.Time
			l := newLink(w, c, perSecond, &end)
			defer l.close()
			end = time.Now().Add(length)
			got[i], errs[i] = l.transfer(w.upload, 32<<10, end)
		})
	}
	all.Wait()
	return got, errors.Join(errs...)
}

// measureFairness lets eight downloads share the limit of a client.
func measureFairness(perSecond int64, length time.Duration, show func(row)) error {
	for _, reads := range []struct {
		name  string
		sizes [8]int
	}{
		{"equal reads", [8]int{32 << 10, 32 << 10, 32 << 10, 32 << 10, 32 << 10, 32 << 10, 32 << 10, 32 << 10}},
		{"32 KiB and 1 KiB", [8]int{32 << 10, 32 << 10, 32 << 10, 32 << 10, 1 << 10, 1 << 10, 1 << 10, 1 << 10}},
	} {
		for _, c := range contenders {
			end := time.Now().Add(length)
			l := newLink(works[1], c, perSecond, &end)
			var got [8]int64
			var errs [8]error
			var all sync.WaitGroup
			for i, size := range reads.sizes {
				all.Go(func() { got[i], errs[i] = l.transfer(false, size, end) })
			}
			all.Wait()
			l.close()
			if err := errors.Join(errs[:]...); err != nil {
				return err
			}
			sum, index := jain(got[:])
			show(row{Measurement: "fair", Work: reads.name, Contender: c.name, MBPerSecond: sum / length.Seconds() / 1e6, Jain: index})
		}
	}
	return nil
}

// jain returns the sum of the values, and the fairness index of Jain.
func jain(values []int64) (sum, index float64) {
	var squares float64
	for _, v := range values {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	return sum, sum * sum / (float64(len(values)) * squares)
}
