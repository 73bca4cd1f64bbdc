package rules

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
)

// TestReload_underLoadObeysTheLimits changes the file repeatedly, to another rate, to another
// algorithm and back, while several goroutines claim units.
func TestReload_underLoadObeysTheLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		other string
		most  func(elapsed time.Duration, changes int64) int64
	}{
		"another rate": {"unit: second, requests_per_unit: 500, burst: 20", func(e time.Duration, _ int64) int64 {
			return 20 + int64(1000*e.Seconds())
		}},
		// Each change of the algorithm starts with a new limiter.
		"another algorithm": {"unit: second, requests_per_unit: 10, algorithm: sliding_log", func(e time.Duration, n int64) int64 {
			return 10*(n+2) + int64(1000*e.Seconds())
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			text := "domain: d\ndescriptors: [{key: a, rate_limit: {%s}}]"
			one := fmt.Sprintf(text, "unit: second, requests_per_unit: 1000, burst: 10")
			start := time.Now()
			set := new(atomic.Pointer[Set])
			first, err := Parse([]byte(one), Config{})
			require.NoError(t, err)
			set.Store(first)
			var granted, changes int64
			done := make(chan struct{})
			for range 8 {
				go func() {
					for {
						var ticket queue.Ticket
						set.Load().Add(&ticket, Descriptor{{"a", "x"}})
						if d, err := ticket.Reserve(context.Background(), time.Time{}); err == nil && d.OK {
							atomic.AddInt64(&granted, 1)
							ticket.Report(context.Background(), throttle.Feedback{})
						}
						select {
						case <-done:
							return
						case <-time.After(time.Millisecond):
						}
					}
				}()
			}
			for i := range 200 {
				time.Sleep(3 * time.Millisecond)
				set.Store(reload(t, set.Load(), []string{fmt.Sprintf(text, tt.other), one}[i%2], Config{}))
				changes++
			}
			close(done)
			synctest.Wait()
			require.LessOrEqual(t, granted, tt.most(time.Since(start), changes), name)
			require.Greater(t, granted, int64(250*time.Since(start).Seconds()), name)
		})
	}
}

// TestKeys_areBounded claims with many new keys. Each is granted its limit, because keys whose
// network is unknown replace each other: see TestInventedKeys_denyNoOther.
func TestKeys_areBounded(t *testing.T) {
	r := oneRule(t, "rate_limit: {unit: hour, requests_per_unit: 1, max_keys: 100}", Config{Clock: fixedClock(friday)})
	granted := 0
	for i := range 10_000 {
		d, err := r.limiter.Reserve(context.Background(), throttle.Claim{Key: fmt.Sprint(i)})
		require.NoError(t, err)
		if d.OK {
			granted++
		}
	}
	require.Equal(t, 100, r.limiter.limiter.(*keyed.Limiter).Len())
	require.Equal(t, 10_000, granted)
}

// TestConfig_valuesOverrideFile uses functions of Config.Values.
func TestConfig_valuesOverrideFile(t *testing.T) {
	type keyFunc func(*http.Request) (string, bool) // a named type, as throttlehttp.KeyFunc
	var ip keyFunc = func(r *http.Request) (string, bool) {
		a, err := netip.ParseAddr(r.Header.Get("X-Real-Ip"))
		return a.String(), err == nil
	}
	s := Config{Values: map[string]func(*http.Request) (string, bool){"remote_address": ip, "country": func(*http.Request) (string, bool) { return "nz", true }}}
	set, err := Parse([]byte(`
domain: d
values: {country: {header: X-Country}}
descriptors:
- {key: remote_address, rate_limit: {name: addr, unit: hour, requests_per_unit: 1}}
- {key: country, value: nz, rate_limit: {name: nz, unit: hour, requests_per_unit: 1}}
`), s)
	require.NoError(t, err)
	require.Equal(t, []string{"nz"}, matchedLimits(set, readRequest(t, "GET /")))
	require.Equal(t, []string{"addr, 198.51.100.7", "nz"}, matchedLimits(set, readRequest(t, "GET /\nX-Real-Ip: 198.51.100.7")))
}

// TestConfig_valuesAreComputedOncePerRequest checks that a value is computed once per request,
// however many limits use it, and however many values a file has.
func TestConfig_valuesAreComputedOncePerRequest(t *testing.T) {
	calls := map[string]int{}
	values := map[string]func(*http.Request) (string, bool){}
	file := "domain: d\ndescriptors:\n"
	for i := range 40 {
		name := fmt.Sprint("v", i)
		values[name] = func(*http.Request) (string, bool) { calls[name]++; return "x", true }
		file += fmt.Sprintf("- {key: %s, rate_limit: {name: a%d, unit: hour, requests_per_unit: 1}}\n", name, i)
		file += fmt.Sprintf("- {key: %s, value: x, rate_limit: {name: b%d, unit: hour, requests_per_unit: 1}}\n", name, i)
	}
	set, err := Parse([]byte(file), Config{Values: values})
	require.NoError(t, err)
	require.NotEmpty(t, matchedLimits(set, readRequest(t, "GET /")))
	require.Len(t, calls, 40)
	require.Equal(t, 1, calls["v0"])
}

// TestLimit_metricMatchesEnvoy compares metrics with the documentation of envoyproxy/ratelimit
// and, where it has no example, with its code.
func TestLimit_metricMatchesEnvoy(t *testing.T) {
	for _, tt := range []struct {
		file string
		ask  Descriptor
		want string
	}{
		{"example8", Descriptor{{"key1", "unspecified_value"}}, "example8.key1_unspecified_value"},
		{"example8", Descriptor{{"key1", "value1"}}, "example8.key1_value1"},
		{"example2", Descriptor{{"message_type", "marketing"}, {"to_number", "7"}}, "messaging.message_type_marketing.to_number"},
		{"example10", Descriptor{{"route", "api"}, {"http_method", "GET"}, {"subject_id", "123"}}, "example10.route_api.http_method_GET.subject_id"},
		{"example10b", Descriptor{{"user", "alice"}, {"action", "readfile"}, {"resource", "documents"}}, "example10_wildcard.user_alice.action_readfile.resource"},
		{"example8", Descriptor{{"key1", "a:1|c\nb\x00 c\u2028"}}, "example8.key1_a_1_c_b__c_"},
		{"example11", Descriptor{{"files", "files/a"}}, "example11.files_files/*"},
		{"example11b", Descriptor{{"route", "api/v1"}, {"method", "GET"}}, "example11_metrics.route_api/*.method"},
	} {
		set, err := Load("testdata/envoy/"+tt.file+".yaml", Config{})
		require.NoError(t, err)
		q := set.newSearch()
		q.matchDescriptor(set.root, tt.ask)
		require.Len(t, q.hits, 1, tt.ask)
		require.Equal(t, tt.want, q.hits[0].rule.limit.Metric(q.hits[0].key), tt.file)
		q.release()
	}
	l := Limit{ID: "d:n"}
	require.Equal(t, "d:n", l.Metric("x"))
}
