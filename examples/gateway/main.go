// Gateway is a reverse proxy for two APIs that limits requests by a file of rules, and
// makes decisions for other services at /allow. Any number of copies share their counts
// through Redis.
//
//	go run . -listen :8080 -users http://localhost:9001 -orders http://localhost:9002 -redis redis://localhost:6379 -copies 2
//
// serves until it is interrupted. Without flags it runs a demo: two APIs, two copies, a
// slow client and a fast one, a rule that changes, and a Redis that fails.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"time"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/redis/go-redis/v9"
)

func main() {
	log.SetFlags(0)
	listen := flag.String("listen", "", "address to serve at; without it the gateway runs a demonstration")
	file := flag.String("rules", "limits.yaml", "file with the limits")
	users := flag.String("users", "http://localhost:9001", "API behind /users/")
	orders := flag.String("orders", "http://localhost:9002", "API behind /orders/")
	shared := flag.String("redis", "", "URL of the Redis that copies share; none: each counts for itself")
	copies := flag.Int("copies", 1, "how many copies share it")
	secret := flag.String("secret", os.Getenv("GATEWAY_SECRET"), "what copies hash tokens with, the same for all; $GATEWAY_SECRET")
	flag.Parse()
	if *listen == "" {
		check(runDemo(os.Stdout))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	check(serve(ctx, *listen, *file, *users, *orders, *shared, *secret, *copies))
}

// serve runs one copy until ctx is done.
func serve(ctx context.Context, listen, file, users, orders, shared, secret string, copies int) error {
	usersURL, err := url.Parse(users)
	if err != nil {
		return err
	}
	ordersURL, err := url.Parse(orders)
	if err != nil {
		return err
	}
	var build func(*rules.Limit) (throttle.Limiter, error)
	if shared != "" && secret == "" {
		return errors.New("gateway: -redis needs -secret, or copies do not know that a client is the same")
	}
	if shared != "" {
		options, err := redis.ParseURL(shared)
		if err != nil {
			return err
		}
		client := redis.NewClient(withoutRetries(options))
		defer client.Close()
		build = redisBuilder(client, copies, 0, func(err error) { log.Print("without Redis: ", err) })
	}
	g, err := newGateway(file, usersURL, ordersURL, []byte(secret), build, func(err error) { log.Print("limits read again: ", err) })
	if err != nil {
		return err
	}
	defer g.close()
	s := &http.Server{Addr: listen, Handler: g, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.Shutdown(last) // requests that are still running after that are interrupted
	}()
	if err := s.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// withoutRetries makes a Redis client respect the deadlines of contexts and never retry.
func withoutRetries(o *redis.Options) *redis.Options {
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1
	return o
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
