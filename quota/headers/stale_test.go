package headers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A response from a cache states the limits of the client that filled it, so they are omitted.
func TestParse_cacheHitsStateNothing(t *testing.T) {
	const limit = "\nX-RateLimit-Limit: 100\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60"
	for header, stale := range map[string]bool{
		"Age: 1": true, "Age: 0": false, "Age: x": false,
		"X-Cache: HIT": true, "X-Cache: Hit from cloudfront": true, "X-Cache: RefreshHit from cloudfront": true, "X-Cache: TCP_MEM_HIT from a.test": true,
		"X-Cache: MISS, HIT": true, "X-Cache: HIT, MISS": true, "X-Cache: hit": true,
		"X-Cache: MISS": false, "X-Cache: Miss from cloudfront": false, "X-Cache: Error from cloudfront": false, "X-Cache: MISS from hit.test": false, "X-Cache: CONFIG_NOCACHE": false, "X-Cache: it": false, "X-Cache:": false,
		"CF-Cache-Status: HIT": true, "CF-Cache-Status: STALE": true, "CF-Cache-Status: UPDATING": true, "CF-Cache-Status: REVALIDATED": true,
		"CF-Cache-Status: MISS": false, "CF-Cache-Status: EXPIRED": false, "CF-Cache-Status: BYPASS": false, "CF-Cache-Status: DYNAMIC": false,
		"X-Cache-Status: HIT": true, "X-Cache-Status: MISS": false, "X-Proxy-Cache: HIT": true, "X-Vercel-Cache: STALE": true, "X-Vercel-Cache: MISS": false,
		"Cache-Status: ExampleCache; hit": true, `Cache-Status: OriginCache; fwd=miss, "CDN"; hit;ttl=3`: true, "Cache-Status: a; hit=?1": true,
		"Cache-Status: ExampleCache; fwd=uri-miss": false, "Cache-Status: a; hit=?0": false, "Cache-Status: a; detail=hits": false,
		"X-Varnish: 123 456": true, "X-Varnish: 123": false,
		"X-Served-By: cache-ams-1\nX-Cache-Hits: 3": true, "X-Cache-Hits: 0, 1": true, "X-Cache-Hits: 0": false, "X-Cache-Hits: 0, 0": false,
		"X-Cache: MISS\nX-Cache: HIT": true,
	} {
		r := Parse(200, parseHeader(header+limit), time.Unix(1700000000, 0))
		require.Equal(t, stale, r.Stale, header)
		require.Len(t, r.Limits, map[bool]int{true: 0, false: 1}[stale], header)
		r = Parse(403, parseHeader(header+limit), time.Unix(1700000000, 0))
		require.Equal(t, !stale, r.Throttled, "%s: the units that were left to another client", header)
	}
	r := Parse(429, parseHeader("X-Cache: HIT\nRetry-After: 7"), time.Unix(1700000000, 0))
	require.Equal(t, StatedWait, r.Stated, "until the cache forgets the rejection, it would repeat it")
}

// A 403 is a rejection because of a limit only if a limit of requests has nothing left.
func TestParse_aPermissionBesideOtherUnits(t *testing.T) {
	for header, throttled := range map[string]bool{
		"X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 59\nX-Credits-Limit: -1\nX-Credits-Remaining: 0": false,
		"X-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Limit-Tokens: 1000":                               false,
		"X-Quota-Limit: 10\nX-Quota-Used: 10":                                                           false,
		"X-Usage-Remaining: 0":                                                                          false,
		"X-RateLimit-Onetime-Remaining: 0":                                                              false,
		"X-Quota-Limit: 10\nX-Quota-Remaining: 0\nX-Quota-Reset: 60":                                    true, // Gravitee
		"X-Quota-Limit-Day: 10\nX-Quota-Remaining-Day: 0":                                               true,
		"X-Request-Quota-Remaining: 0":                                                                  true,
		"X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 0":                                               true,
		"X-RateLimit-Remaining-Requests: 0":                                                             true,
		"X-Concurrency-Limit-Remaining: 0":                                                              true,
		"X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 1":                                               false,
		"X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 1\nRetry-After: 3":                               true,
	} {
		require.Equal(t, throttled, Parse(403, parseHeader(header), time.Unix(1700000000, 0)).Throttled, header)
	}
}

// The Priority and fast tiers of Anthropic do not delay requests: beyond their limits, requests are
// processed in the standard tier.
func TestParse_ignoresFallbackTiers(t *testing.T) {
	for _, name := range []string{"anthropic-priority-input-tokens", "anthropic-priority-output-tokens", "anthropic-fast-input-tokens", "anthropic-fast-output-tokens"} {
		h := parseHeader(name + "-limit: 1000\n" + name + "-remaining: 0\n" + name + "-reset: 2026-03-02T10:00:30Z")
		require.Empty(t, Parse(200, h, time.Unix(1700000000, 0)).Limits, name)
	}
	require.Len(t, Parse(200, parseHeader("anthropic-ratelimit-input-tokens-remaining: 0"), time.Unix(1700000000, 0)).Limits, 1)
}

// X-Amz-Retry-After is a number of milliseconds, and no Retry-After: clients bound it.
func TestParse_readsTheSuggestedDelay(t *testing.T) {
	for v, want := range map[string]time.Duration{"1500": 1500 * time.Millisecond, "0": 0, "-1": 0, "x": 0, "99999999999999999999": MaxDelay} {
		r := Parse(503, parseHeader("X-Amz-Retry-After: "+v), time.Unix(1700000000, 0))
		require.Equal(t, want, r.SuggestedDelay, v)
		require.False(t, r.HasRetryAfter)
		require.False(t, r.Throttled)
	}
}
