package otelheed_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/otelheed"
	"github.com/heed-go/heed/quota"
)

// A client with the metrics of otelhttp and of otelheed. With the global providers the Config
// needs no providers.
func Example() {
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Policy", `"default";q=100;w=60`)
		w.Header().Set("RateLimit", `"default";r=99;t=30`)
	}))
	defer server.Close()

	tracker := &quota.Tracker{}
	telemetry, err := otelheed.New(otelheed.Config{MeterProvider: provider, Quota: tracker})
	if err != nil {
		log.Fatal(err)
	}
	client := heed.NewClient(&heed.Transport{
		Base:  otelhttp.NewTransport(telemetry.RoundTripper(http.DefaultTransport), otelhttp.WithMeterProvider(provider)),
		Quota: tracker,
		Trace: telemetry.Trace(),
	})
	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()

	var collected metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &collected); err != nil {
		log.Fatal(err)
	}
	for _, scope := range collected.ScopeMetrics {
		for _, m := range scope.Metrics {
			fmt.Println(m.Name)
		}
	}
	// Unordered output:
	// http.client.request.duration
	// http.client.request.body.size
	// heed.client.call.duration
	// heed.client.attempts
	// heed.client.quota.limit
	// heed.client.quota.remaining
	// heed.client.quota.utilization
	// heed.client.quota.reset
}
