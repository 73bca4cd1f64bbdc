package promheed_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/promheed"
	"github.com/heed-go/heed/quota"
)

// A client whose metrics a server offers at /metrics.
func Example() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit-Policy", `"default";q=100;w=60`)
		w.Header().Set("RateLimit", `"default";r=99;t=30`)
	}))
	defer api.Close()

	tracker := &quota.Tracker{}
	collector := promheed.New(promheed.Config{Quota: tracker})
	prometheus.MustRegister(collector)
	client := heed.NewClient(&heed.Transport{Quota: tracker, Trace: collector.Trace()})
	resp, err := client.Get(api.URL)
	if err != nil {
		log.Fatal(err)
	}
	resp.Body.Close()

	metrics := httptest.NewServer(promhttp.Handler())
	defer metrics.Close()
	resp, err = http.Get(metrics.URL)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, "{"); ok && strings.HasPrefix(name, "heed_client_quota_") && !strings.Contains(name, "reset") {
			fmt.Println(name, value[strings.LastIndex(value, " ")+1:len(value)-1])
		}
	}
	// Output:
	// heed_client_quota_limit 100
	// heed_client_quota_remaining 99
	// heed_client_quota_utilization_ratio 0.01
}
