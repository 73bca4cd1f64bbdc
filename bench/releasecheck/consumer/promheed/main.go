// This consumer of promheed sends one request and finds its metric.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/promheed"
)

func main() {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	collector := promheed.New(promheed.Config{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	resp, err := heed.NewClient(&heed.Transport{Trace: collector.Trace()}).Get(server.URL)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()
	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, want := range []string{"heed_client_attempts_total", "heed_client_call_duration_seconds"} {
		if !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == want }) {
			log.Fatalf("%v, without %s", families, want)
		}
	}
	fmt.Println("ok")
}
