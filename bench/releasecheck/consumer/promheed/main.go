// This consumer of promheed sends one request and finds its metric.
package main

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/prometheus/client_golang/prometheus"

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
	if len(families) != 1 || families[0].GetName() != "heed_client_call_duration_seconds" {
		log.Fatalf("%v, not the duration of one call", families)
	}
	fmt.Println("ok")
}
