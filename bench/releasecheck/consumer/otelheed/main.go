// This consumer of otelheed sends one request and finds its metric.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/otelheed"
)

func main() {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	reader := sdkmetric.NewManualReader()
	telemetry, err := otelheed.New(otelheed.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		log.Fatal(err)
	}
	client := heed.NewClient(&heed.Transport{Base: telemetry.RoundTripper(nil), Trace: telemetry.Trace()})
	resp, err := client.Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		log.Fatal(err)
	}
	if len(all.ScopeMetrics) != 1 || all.ScopeMetrics[0].Metrics[0].Name != "heed.client.call.duration" {
		log.Fatalf("%+v, not the duration of one call", all)
	}
	if otelheed.Version() == "" {
		log.Fatal("the version is not known")
	}
	fmt.Println("ok")
}
