package main

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/heed-go/heed"
	"github.com/redis/go-redis/v9/logging"
)

// runDemo shows all features of the gateway.
func runDemo(out io.Writer) error {
	t, err := build(0)
	if err != nil {
		return err
	}
	defer t.close()
	fmt.Fprintln(out, "60 calls from 10 goroutines to two copies, each client may make 20 a second:")
	for _, c := range []struct {
		name string
		http *http.Client
	}{{"hasty", &http.Client{}}, {"polite", heed.NewClient(nil)}} {
		start := time.Now()
		ok, rejected := t.callParallel(c.http, c.name, 60)
		fmt.Fprintf(out, "   %-7s %2d served, %2d rejected, %.1f s\n", c.name, ok, rejected, time.Since(start).Seconds())
	}
	fmt.Fprintln(out, "an order more than five a minute, at either copy:")
	for i := range 6 {
		status, body := t.request(i, http.MethodPost, "/orders/", "buyer")
		fmt.Fprintf(out, "   copy %d: %d %s\n", i%2+1, status, body)
	}
	fmt.Fprintln(out, "/allow decides for whoever does the work elsewhere:")
	for i, cost := range []string{"4", "4", "4"} {
		status, body := t.request(i, http.MethodGet, "/allow?key=mail&cost="+cost, "mailer")
		fmt.Fprintf(out, "   copy %d, cost %s: %d %s\n", i%2+1, cost, status, body)
	}
	status, body := t.request(0, http.MethodGet, "/users/", "invented")
	fmt.Fprintf(out, "an invented token: %d %s\n", status, body)
	fmt.Fprintln(out, "the file says 8 orders a minute from now on:")
	if err := t.rewrite("requests_per_unit: 5,", "requests_per_unit: 8,"); err != nil {
		return err
	}
	status, body = t.request(0, http.MethodPost, "/orders/", "buyer")
	fmt.Fprintf(out, "   copy 1: %d %s\n", status, body)
	fmt.Fprintln(out, "Redis goes away, and each copy goes on with half of each limit:")
	logging.Disable() // go-redis would log each failed connection
	t.stopRedis()
	ok, rejected := t.callParallel(&http.Client{}, "somebody", 60)
	fmt.Fprintf(out, "   hasty   %2d served, %2d rejected\n", ok, rejected)
	return nil
}
