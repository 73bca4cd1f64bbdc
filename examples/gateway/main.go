// Gateway is a reverse proxy for two APIs that limits requests by a file of rules, and
// makes decisions for other services at /allow. Any number of copies share their counts
// through Redis.
//
//	go run . -listen :8080 -clients clients.txt -users http://localhost:9001 -orders http://localhost:9002 -redis redis://localhost:6379 -copies 2
//
// serves until it is interrupted or terminated, and reads the clients and the limits again when their
// files change. With -tenants, each tenant has a limit that is kept in a database and changed over an
// admin API: see README.md. Without flags it runs a demo: two APIs, two copies, a
// slow client and a fast one, a rule that changes, and a Redis that fails.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/redis/go-redis/v9"
)

// A config holds the flags.
type config struct {
	listen, file, users, orders string
	clients, trusted            string
	cert, key                   string
	timeout, drain              time.Duration
	redis                       string
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
	lint := flag.Bool("lint", false, "print what is probably a mistake in the file with the limits, and end; an error if the file is invalid")
	flag.StringVar(&c.users, "users", "http://localhost:9001", "API behind /users/")
	flag.StringVar(&c.orders, "orders", "http://localhost:9002", "API behind /orders/")
	flag.StringVar(&c.clients, "clients", "", "file with the clients and their tokens, read again on SIGHUP; none: clients are addresses, and /allow is not served")
	flag.StringVar(&c.trusted, "trusted", "", "networks of the proxies in front of the gateway, whose X-Forwarded-For is trusted, such as 10.0.0.0/8,fd00::/8")
	flag.StringVar(&c.cert, "cert", "", "file with the certificate of -listen in PEM, read again when it changes; none: no TLS")
	flag.StringVar(&c.key, "key", "", "file with the private key of -cert")
	flag.DurationVar(&c.timeout, "timeout", time.Minute, "how long a request, and a response, may take")
	flag.DurationVar(&c.drain, "drain", 5*time.Second, "how long /readyz fails before the gateway stops, so that balancers notice")
	flag.StringVar(&c.redis, "redis", "", "URL of the Redis that copies share; none: each counts for itself")
	flag.IntVar(&c.copies, "copies", 1, "how many copies share it")
	flag.StringVar(&c.database, "tenants", "", "bbolt database with the limits of tenants; none: tenants have no limits")
	flag.StringVar(&c.admin, "admin", "localhost:8081", "address of /healthz, /readyz, /metrics and the admin API of -tenants")
	flag.StringVar(&c.remote, "tenants-of", "", "URL of the admin API of the copy that has -tenants, instead of -tenants")
	flag.StringVar(&c.adminToken, "admin-token", os.Getenv("GATEWAY_ADMIN_TOKEN"), "bearer token of the admin API; $GATEWAY_ADMIN_TOKEN")
	flag.DurationVar(&c.tenantTTL, "tenants-ttl", 30*time.Second, "how long a copy with -tenants-of may use an old limit")
	flag.Parse()
	if *lint {
		check(c.lint(os.Stdout))
		return
	}
	if c.listen == "" {
		check(runDemo(os.Stdout))
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	check(c.serve(ctx, func(public, admin net.Addr) {
		log.Print("gateway: listening at ", public, ", for operators at ", admin)
	}))
}

// lint writes the findings for the file with the limits to w, for instance before the file is installed.
func (c config) lint(w io.Writer) error {
	text, err := os.ReadFile(c.file)
	if err != nil {
		return err
	}
	findings, err := rules.Lint(text, gatewayConfig{}.rulesConfig())
	for _, f := range findings {
		fmt.Fprintf(w, "%s:%v\n", c.file, f)
	}
	return err
}

// serve runs one copy until ctx is done. It calls ready with the addresses.
func (c config) serve(ctx context.Context, ready func(public, admin net.Addr)) error {
	o := newOperations()
	g := gatewayConfig{file: c.file, timeout: c.timeout, operations: o, onReload: func(err error) { log.Print("limits read again: ", err) }}
	var err error
	if g.users, err = url.Parse(c.users); err != nil {
		return err
	}
	if g.orders, err = url.Parse(c.orders); err != nil {
		return err
	}
	if g.address.Trusted, err = parseNetworks(c.trusted); err != nil {
		return err
	}
	if c.clients != "" {
		if g.clients, err = loadClients(c.clients); err != nil {
			return err
		}
		defer reloadOnHangup(g.clients)()
	}
	var secure *tls.Config
	if c.cert != "" {
		if secure, err = certificate(c.cert, c.key); err != nil {
			return err
		}
	}
	build, closeRedis, err := c.builder(o)
	if err != nil {
		return err
	}
	defer closeRedis()
	tenants, admin, closeTenants, err := c.tenants()
	if err != nil {
		return err
	}
	defer closeTenants()
	g.build, g.tenants = build, tenants
	public, err := newGateway(g)
	if err != nil {
		return err
	}
	defer public.close()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	servers := []server{
		{c.listen, c.httpServer(accessLog(log, g.address, public), secure)},
		{c.admin, c.httpServer(o.handler(admin), nil)},
	}
	return serveAll(ctx, servers, func(addrs []net.Addr) { ready(addrs[0], addrs[1]) }, func() {
		o.stopping.Store(true)
		time.Sleep(c.drain)
	})
}

// httpServer returns a server that no client can keep busy for longer than twice the timeout.
func (c config) httpServer(h http.Handler, secure *tls.Config) *http.Server {
	return &http.Server{
		Handler: h, TLSConfig: secure,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: c.timeout, WriteTimeout: 2 * c.timeout, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
	}
}

// parseNetworks reads networks that are separated by commas.
func parseNetworks(list string) (all []netip.Prefix, err error) {
	for text := range strings.SplitSeq(list, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("gateway: -trusted: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// reloadOnHangup reads the clients again on each SIGHUP until stop is called.
func reloadOnHangup(c *clients) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		for range hangups {
			log.Print("clients read again: ", c.reload())
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
	}
}

// builder returns the function that builds the limits of the file in Redis; nil without Redis.
func (c config) builder(o *operations) (build func(*rules.Limit) (throttle.Limiter, error), closeRedis func(), err error) {
	if c.redis == "" {
		return nil, func() {}, nil
	}
	options, err := redis.ParseURL(c.redis)
	if err != nil {
		return nil, nil, err
	}
	client := redis.NewClient(withoutRetries(options))
	build = redisBuilder(client, c.copies, 0, o.metrics)
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
	addr string
	http *http.Server
}

// serveAll serves until ctx is done or one of the servers fails. Then it calls stopping while the
// servers continue, and gives running requests 10 seconds to end.
func serveAll(ctx context.Context, servers []server, ready func([]net.Addr), stopping func()) error {
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
		running.Go(func() {
			serve := s.http.Serve
			if s.http.TLSConfig != nil {
				serve = func(l net.Listener) error { return s.http.ServeTLS(l, "", "") }
			}
			if err := serve(listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				cancel(err)
			}
		})
	}
	ready(addrs)
	<-ctx.Done()
	stopping()
	last, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	for _, s := range servers {
		running.Go(func() { _ = s.http.Shutdown(last) }) // requests that are still running after that are interrupted
	}
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
