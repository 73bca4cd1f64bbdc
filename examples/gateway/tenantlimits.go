package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"time"

	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
)

// tenantHeader names the tenant of a request. Without a file of clients, the authentication in front of
// the gateway must set it, and remove it from the requests of clients. With one, the tenant is the
// client, and the gateway sets the header for the APIs.
const tenantHeader = "X-Tenant"

// tenantOf is the key of the limits of tenants if the gateway knows no clients.
func tenantOf(r *http.Request) (string, bool) {
	v := r.Header[http.CanonicalHeaderKey(tenantHeader)]
	if len(v) != 1 || !validName.MatchString(v[0]) {
		return "", false
	}
	return v[0], true
}

// A lookup is source.Source.Lookup.
type lookup func(ctx context.Context, name string) (throttle.Limit, error)

// tenantLimits is the limiter of tenants. A tenant without a limit is rejected.
type tenantLimits struct {
	source  *source.Source
	limiter throttle.Limiter
}

// unknownLimit is the limit of a tenant that cannot be looked up because the database is not
// reachable, and was not looked up before.
var unknownLimit = throttle.Limit{Name: "tenant", Count: 10, Per: time.Second}

// newTenantLimits returns limits that remember the results of find for at most ttl. They
// follow a change of a limit in the same process immediately, if refresh is called after it,
// and within ttl in other processes.
func newTenantLimits(find lookup, ttl time.Duration) *tenantLimits {
	s := &source.Source{
		Lookup:     find,
		TTL:        ttl,
		MissingTTL: min(ttl, 10*time.Second),
		MaxLookups: 256, // after a change all tenants are looked up again
		OnError:    func(_ string, err error) { log.Print("gateway: ", err) },
	}
	return &tenantLimits{source: s, limiter: throttle.NewFallback(throttle.FallbackConfig{
		Primary:   s,
		Secondary: keyed.NewBuckets(keyed.BucketsConfig{Limit: unknownLimit}),
	})}
}

// refresh makes each tenant look up its limit again with its next request.
func (l *tenantLimits) refresh() { l.source.Refresh() }

// rule returns the rule of a throttlehttp.Middleware. It rejects requests without a tenant.
func (l *tenantLimits) rule(knowsClients bool) throttlehttp.Rule {
	key := tenantOf
	if knowsClients {
		key = func(r *http.Request) (string, bool) { return clientOf(r).name, true }
	}
	return throttlehttp.Rule{Limiter: l.limiter, Key: key, MissingKey: throttlehttp.Reject}
}

// remoteTenants looks tenants up at the admin API of another copy of the gateway, because only
// one process can open the database.
func remoteTenants(client *http.Client, base *url.URL, token string) lookup {
	return func(ctx context.Context, name string) (throttle.Limit, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("tenants", name).String(), nil)
		if err != nil {
			return throttle.Limit{}, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			return throttle.Limit{}, err
		}
		defer resp.Body.Close()
		switch resp.StatusCode {
		case http.StatusOK:
		case http.StatusNotFound:
			return throttle.Limit{}, source.ErrNoLimit
		default:
			return throttle.Limit{}, fmt.Errorf("gateway: the admin API responds with %s", resp.Status)
		}
		var t tenant
		if err := json.NewDecoder(io.LimitReader(resp.Body, maxAdminBody)).Decode(&t); err != nil {
			return throttle.Limit{}, fmt.Errorf("gateway: the response of the admin API: %w", err)
		}
		if t.Name != name {
			return throttle.Limit{}, errors.New("gateway: the response of the admin API is for another tenant")
		}
		if err := t.validate(); err != nil {
			return throttle.Limit{}, fmt.Errorf("gateway: the response of the admin API: %w", err)
		}
		return t.limit()
	}
}
