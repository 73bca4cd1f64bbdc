package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/heed-go/heed/promheed"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// An entry is a line of the access log.
type entry struct {
	client string
	limit  string // that rejected the request
	status int
	bytes  int64
}

type entryKey struct{}

// logged returns the entry of r, which handlers complete.
func logged(r *http.Request) *entry {
	if e, ok := r.Context().Value(entryKey{}).(*entry); ok {
		return e
	}
	return new(entry)
}

// accessLog writes a line for each request: no query and no header, because they can be secrets.
func accessLog(log *slog.Logger, address throttlehttp.IP, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, start := new(entry), time.Now()
		from, _ := address.Addr(r)
		defer func() {
			log.LogAttrs(r.Context(), slog.LevelInfo, "request", slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.Int("status", e.status),
				slog.Int64("bytes", e.bytes), slog.Duration("took", time.Since(start)), slog.Any("from", from), slog.String("client", e.client), slog.String("limit", e.limit))
		}()
		next.ServeHTTP(&countingWriter{w, e}, r.WithContext(context.WithValue(r.Context(), entryKey{}, e)))
	})
}

// A countingWriter completes an entry.
type countingWriter struct {
	http.ResponseWriter
	entry *entry
}

func (w *countingWriter) WriteHeader(status int) {
	if w.entry.status == 0 && status >= 200 {
		w.entry.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *countingWriter) Write(p []byte) (int, error) {
	if w.entry.status == 0 {
		w.entry.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.entry.bytes += int64(n)
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// traceOf records decisions as metrics, and the limit that rejected a request in the access log.
func traceOf(metrics *promheed.Collector) *throttlehttp.Trace {
	recorded := metrics.Middleware()
	return &throttlehttp.Trace{
		Decided: func(r *http.Request, d throttle.Decision) {
			if recorded.Decided(r, d); !d.OK {
				logged(r).limit = d.Policy
			}
		},
		Failed: recorded.Failed,
	}
}

// An operations is the state that the operators of a gateway see.
type operations struct {
	metrics  *promheed.Collector
	registry *prometheus.Registry
	stopping atomic.Bool
}

func newOperations() *operations {
	o := &operations{metrics: promheed.New(promheed.Config{}), registry: prometheus.NewRegistry()}
	o.registry.MustRegister(o.metrics, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return o
}

// handler serves what operators need, and admin below /tenants. It is for a network without clients.
//
//	/healthz    200 while the process runs: restart it otherwise
//	/readyz     503 as soon as the gateway stops: a balancer then sends it no new requests
//	/metrics    for Prometheus
func (o *operations) handler(admin http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if o.stopping.Load() {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		}
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{}))
	if admin != nil {
		mux.Handle("/tenants", admin)
		mux.Handle("/tenants/", admin)
	}
	return mux
}

// certificate returns a TLS configuration with the certificate in two files, which are read again
// when the first one has changed.
func certificate(certFile, keyFile string) (*tls.Config, error) {
	var mu sync.Mutex
	var loaded tls.Certificate
	var changed time.Time
	get := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		state, err := os.Stat(certFile)
		if err == nil && !state.ModTime().Equal(changed) {
			var next tls.Certificate
			if next, err = tls.LoadX509KeyPair(certFile, keyFile); err == nil {
				loaded, changed = next, state.ModTime()
			}
		}
		if loaded.Certificate == nil {
			return nil, err
		}
		c := loaded // one that is replaced at this moment is in use until both files are valid
		return &c, nil
	}
	_, err := get(nil)
	return &tls.Config{GetCertificate: get, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, err
}
