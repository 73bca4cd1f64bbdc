// Telemetry measures what metrics and spans cost per request, beside otelhttp alone, in
// alternation within one process.
//
//	go run ./telemetry -json
//
// With -check it fails if heed with otelheed adds more than 3 µs or 12 allocations.
//
// All requests are sent below a recorded span, to a server in memory, and are granted
// immediately. The result is the time and the allocations that a Transport adds to those of
// otelhttp alone: with no Trace, with otelheed, with promheed and with LogTrace; for a server
// that states no limit, and for one whose rate-limit headers the Transport parses. Times are
// CPU time of one goroutine.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/bench"
	"github.com/heed-go/heed/otelheed"
	"github.com/heed-go/heed/promheed"
	"github.com/heed-go/heed/quota"
)

// A row is one comparison with otelhttp alone.
type row struct {
	Server      string  `json:"server"`
	Client      string  `json:"client"`
	Ns          float64 `json:"ns"`
	OtelNs      float64 `json:"otelhttp_ns"`
	AddedNs     float64 `json:"added_ns"`
	Allocs      uint64  `json:"allocs"`
	OtelAllocs  uint64  `json:"otelhttp_allocs"`
	AddedAllocs int64   `json:"added_allocs"`
}

func main() {
	rounds := flag.Int("rounds", 8, "rounds in which every client is measured")
	sample := flag.Duration("sample", 200*time.Millisecond, "about how long one sample takes")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	check := flag.Bool("check", false, "fail if otelheed adds too much")
	flag.Parse()
	if *rounds < 1 {
		log.Fatal("telemetry: -rounds must be positive")
	}
	pairs, err := newPairs()
	if err != nil {
		log.Fatal(err)
	}
	results, err := bench.Compare(pairs, []int{1}, *rounds, *sample)
	if err != nil {
		log.Fatal(err)
	}
	missed := false
	for _, r := range results {
		x := row{r.Pair.Work, r.Pair.Call, r.Heed, r.Theirs, r.Heed - r.Theirs, r.HeedAllocs, r.PeerAllocs, int64(r.HeedAllocs) - int64(r.PeerAllocs)}
		show(x, *asJSON)
		missed = missed || x.Client == withOtel && (x.AddedNs > maxAddedNs || x.AddedAllocs > maxAddedAllocs)
	}
	if *check && missed {
		log.Fatalf("telemetry: %s adds more than %d ns or %d allocations", withOtel, maxAddedNs, maxAddedAllocs)
	}
}

const (
	withOtel       = "heed with otelheed"
	maxAddedNs     = 3000
	maxAddedAllocs = 12
)

func show(r row, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	fmt.Printf("%-15s %-19s adds %5.0f ns and %d allocations to %.0f ns and %d of otelhttp alone\n", r.Server, r.Client, r.AddedNs, r.AddedAllocs, r.OtelNs, r.OtelAllocs)
}

// A client has providers of OpenTelemetry that keep nothing, so that only the instrumentation
// is measured.
type client struct {
	meters *sdkmetric.MeterProvider
	tracer *sdktrace.TracerProvider
}

func newClient() client {
	return client{sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())), sdktrace.NewTracerProvider()}
}

// otelhttp returns the RoundTripper of otelhttp above base.
func (c client) otelhttp(base http.RoundTripper) http.RoundTripper {
	return otelhttp.NewTransport(base, otelhttp.WithMeterProvider(c.meters), otelhttp.WithTracerProvider(c.tracer))
}

// side returns the measured work: n requests with rt.
func (c client) side(rt http.RoundTripper) bench.Side {
	ctx, span := c.tracer.Tracer("bench").Start(context.Background(), "bench")
	_ = span // recorded for as long as the program runs
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.test/items", http.NoBody)
	if err != nil {
		log.Fatal(err)
	}
	return func(n int) (granted int) {
		for range n {
			if resp, err := rt.RoundTrip(req); err == nil {
				resp.Body.Close()
				granted++
			}
		}
		return granted
	}
}

// newPairs returns each client beside otelhttp alone, for both servers.
func newPairs() (all []bench.Pair, err error) {
	for name, header := range map[string]http.Header{
		"no headers":   {},
		"limit stated": {"Ratelimit-Policy": {`"default";q=1000000000;w=60`}, "Ratelimit": {`"default";r=999999999;t=30`}},
	} {
		pairs, err := pairsFor(name, server{header})
		if err != nil {
			return nil, err
		}
		all = append(all, pairs...)
	}
	slices.SortStableFunc(all, func(a, b bench.Pair) int { return strings.Compare(b.Work, a.Work) })
	return all, nil
}

func pairsFor(name string, s server) (all []bench.Pair, err error) {
	alone := newClient()
	peer := alone.side(alone.otelhttp(s))
	add := func(call string, rt http.RoundTripper, c client) {
		all = append(all, bench.Pair{Work: name, Call: call, Peer: "otelhttp", Granted: true, Heed: c.side(rt), Theirs: peer})
	}
	c := newClient()
	add("heed without Trace", &heed.Transport{Base: c.otelhttp(s)}, c)

	c = newClient()
	tracker := new(quota.Tracker)
	telemetry, err := otelheed.New(otelheed.Config{MeterProvider: c.meters, TracerProvider: c.tracer, Quota: tracker})
	if err != nil {
		return nil, err
	}
	add(withOtel, &heed.Transport{Base: c.otelhttp(telemetry.RoundTripper(s)), Quota: tracker, Trace: telemetry.Trace()}, c)

	c = newClient()
	tracker = new(quota.Tracker)
	add("heed with promheed", &heed.Transport{Base: c.otelhttp(s), Quota: tracker, Trace: promheed.New(promheed.Config{Quota: tracker}).Trace()}, c)

	c = newClient()
	add("heed with LogTrace", &heed.Transport{Base: c.otelhttp(s), Trace: heed.LogTrace(slog.New(slog.NewTextHandler(io.Discard, nil)))}, c)
	return all, nil
}

// A server responds in memory with the given header.
type server struct{ header http.Header }

// RoundTrip implements http.RoundTripper.
func (s server) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: s.header, Body: http.NoBody, Request: req, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, nil
}
