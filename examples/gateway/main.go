// Gateway is a reverse proxy for two APIs that limits requests by a file of rules, and
// makes decisions for other services at /allow. Any number of copies share their counts
// through Redis.
//
//	go run . -listen :8080 -users http://localhost:9001 -orders http://localhost:9002 -redis redis://localhost:6379 -copies 2
//
// serves until it is interrupted. With -tenants, each tenant has a limit that is kept in a
// database and changed over an admin API: see README.md. Without flags it runs a demo: two APIs, two copies, a
// slow client and a fast one, a rule that changes, and a Redis that fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/redis/go-redis/v9"
)

// A config holds the flags.
type config struct {
	listen, file, users, orders string
	redis, secret               string
	copies                      int
	database, remote            string
	admin, adminToken           string
	tenantTTL                   time.Duration
}

func main() {
	log.SetFlags(0)
	var c config
	flag.StringVar(&c.listen, "listen", "", "address to serve at; without it the gateway runs a demonstration")
	flag.StringVar(&c.file, "rules", "limits.yaml", "file with the limits")
	flag.StringVar(&c.users, "users", "http://localhost:9001", "API behind /users/")
	flag.StringVar(&c.orders, "orders", "http://localhost:9002", "API behind /orders/")
	flag.StringVar(&c.redis, "redis", "", "URL of the Redis that copies share; none: each counts for itself")
	flag.IntVar(&c.copies, "copies", 1, "how many copies share it")
	flag.StringVar(&c.secret, "secret", os.Getenv("GATEWAY_SECRET"), "what copies hash tokens with, the same for all; $GATEWAY_SECRET")
	flag.StringVar(&c.database, "tenants", "", "bbolt database with the limits of tenants; none: tenants have no limits")
	flag.StringVar(&c.admin, "admin", "localhost:8081", "address of the admin API of -tenants")
	flag.StringVar(&c.remote, "tenants-of", "", "URL of the admin API of the copy that has -tenants, instead of -tenants")
	flag.StringVar(&c.adminToken, "admin-token", os.Getenv("GATEWAY_ADMIN_TOKEN"), "bearer token of the admin API; $GATEWAY_ADMIN_TOKEN")
	flag.DurationVar(&c.tenantTTL, "tenants-ttl", 30*time.Second, "how long a copy with -tenants-of may use an old limit")
	flag.Parse()
	if c.listen == "" {
		check(runDemo(os.Stdout))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	check(c.serve(ctx, func(public, admin net.Addr) { log.Print("gateway: listening at ", public, ", admin API at ", admin) }))
}

// serve runs one copy until ctx is done. It calls ready with the addresses; that of the admin
// API is nil if there is none.
func (c config) serve(ctx context.Context, ready func(public, admin net.Addr)) error {
	usersURL, err := url.Parse(c.users)
	if err != nil {
		return err
	}
	ordersURL, err := url.Parse(c.orders)
	if err != nil {
		return err
	}
	build, closeRedis, err := c.builder()
	if err != nil {
		return err
	}
	defer closeRedis()
	tenants, admin, closeTenants, err := c.tenants()
	if err != nil {
		return err
	}
	defer closeTenants()
	g, err := newGateway(c.file, usersURL, ordersURL, []byte(c.secret), build, func(err error) { log.Print("limits read again: ", err) }, tenants)
	if err != nil {
		return err
	}
	defer g.close()
	servers := []server{{c.listen, g}}
	if admin != nil {
		servers = append(servers, server{c.admin, admin})
	}
	return serveAll(ctx, servers, func(addrs []net.Addr) { ready(addrs[0], append(addrs, nil)[1]) })
}

// builder returns the function that builds the limits of the file in Redis; nil without Redis.
func (c config) builder() (build func(*rules.Limit) (throttle.Limiter, error), closeRedis func(), err error) {
	if c.redis == "" {
		return nil, func() {}, nil
	}
	if c.secret == "" {
		return nil, nil, errors.New("gateway: -redis needs -secret, or copies do not know that a client is the same")
	}
	options, err := redis.ParseURL(c.redis)
	if err != nil {
		return nil, nil, err
	}
	client := redis.NewClient(withoutRetries(options))
	build = redisBuilder(client, c.copies, 0, func(err error) { log.Print("without Redis: ", err) })
	return build, func() { client.Close() }, nil
}

// tenants returns the limits of tenants, and the admin API if this copy has the database. Both
// are nil without tenants.
func (c config) tenants() (limits *tenantLimits, admin http.Handler, closeStore func(), err error) {
	closeStore = func() {}
	switch {
	case c.database != "" && c.remote != "":
		return nil, nil, nil, errors.New("gateway: -tenants and -tenants-of exclude each other")
	case c.tenantTTL <= 0:
		return nil, nil, nil, fmt.Errorf("gateway: -tenants-ttl is %v: it must be positive", c.tenantTTL)
	case c.remote != "":
		base, err := url.Parse(c.remote)
		if err != nil {
			return nil, nil, nil, err
		}
		return newTenantLimits(remoteTenants(heed.NewClient(nil), base, c.adminToken), c.tenantTTL), nil, closeStore, nil
	case c.database == "":
		return nil, nil, closeStore, nil
	}
	store, err := openTenantStore(c.database)
	if err != nil {
		return nil, nil, nil, err
	}
	limits = newTenantLimits(store.lookup, c.tenantTTL)
	if admin, err = newAdmin(store, c.adminToken, limits.refresh); err != nil {
		_ = store.close()
		return nil, nil, nil, err
	}
	return limits, admin, func() { _ = store.close() }, nil
}

// A server is an address and what is served there.
type server struct {
	addr    string
	handler http.Handler
}

// serveAll serves until ctx is done or one of the servers fails. Running requests then have 10
// seconds to end.
func serveAll(ctx context.Context, servers []server, ready func([]net.Addr)) error {
	var listeners []net.Listener
	var addrs []net.Addr
	for _, s := range servers {
		l, err := net.Listen("tcp", s.addr)
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return err
		}
		listeners, addrs = append(listeners, l), append(addrs, l.Addr())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for i, s := range servers {
		h := &http.Server{Handler: s.handler, ReadHeaderTimeout: 10 * time.Second}
		running.Go(func() {
			if err := h.Serve(listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				cancel(err)
			}
		})
		running.Go(func() {
			<-ctx.Done()
			last, stop := context.WithTimeout(context.Background(), 10*time.Second)
			defer stop()
			_ = h.Shutdown(last) // requests that are still running after that are interrupted
		})
	}
	ready(addrs)
	running.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
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
