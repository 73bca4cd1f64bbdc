package rules

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// Invented keys of two networks, more than max_keys, deny no client of another network.
func TestInventedKeys_denyNoOther(t *testing.T) {
	for _, values := range []string{"", "values: {remote_address: {request: remote_address}}\n"} {
		for _, amount := range []string{
			"{unit: day, requests_per_unit: 1000, max_keys: 5000}",
			"{unit: hour, requests_per_unit: 100, max_keys: 5000}",
			"{unit: minute, requests_per_unit: 60, max_keys: 5000}",
			"{unit: hour, requests_per_unit: 100, algorithm: token_bucket, compact: true, max_keys: 5000}",
		} {
			if testing.Short() && values != "" && !strings.HasPrefix(amount, "{unit: minute") {
				continue
			}
			set, err := Parse([]byte("domain: api\n"+values+"descriptors:\n  - key: remote_address\n    rate_limit: "+amount+"\n"), Config{Clock: fixedClock(friday)})
			require.NoError(t, err)
			serves := func(addr string) bool {
				var tk queue.Ticket
				if err := set.Limits(&http.Request{URL: &url.URL{Path: "/"}, RemoteAddr: addr}, &tk); err != nil {
					require.NoError(t, err)
				}
				d, err := tk.Reserve(context.Background(), time.Time{})
				if err != nil {
					require.NoError(t, err)
				}
				return d.OK
			}
			denied := 0
			for i := 0; denied < 200; i++ { // until the networks have nothing left
				denied++
				if serves(fmt.Sprintf("[2001:db8:%d:%x::1]:1000", 1+i&1, i>>1&0xffff)) {
					denied = 0
				}
				if i >= 200_000 {
					require.Fail(t, "the networks have no end")
				}
			}
			served := 0
			for i := range 2000 {
				if serves(fmt.Sprintf("198.18.%d.%d:99", i>>8, i&255)) {
					served++
				}
			}
			require.GreaterOrEqual(t, served, 1980, amount)
		}
	}
}

// The address of a client is found in keys of several values, and only where clients cannot choose
// it.
func TestClientAddr(t *testing.T) {
	for _, row := range []struct{ limit, values, want string }{
		{"key: remote_address", "", "192.0.2.7"},
		{"key: [plan, remote_address]", "plan: {header: X-Plan}", "192.0.2.7"},
		{"key: [remote_address, plan]", "plan: {header: X-Plan}", "192.0.2.7"},
		{"key: client", "client: {request: remote_address}", "192.0.2.7"},
		{"key: plan", "plan: {header: X-Plan}", "invalid IP"},
		{"key: remote_address", "remote_address: {header: X-Plan}", "invalid IP"},
	} {
		set, err := Parse([]byte("domain: d\nvalues: {"+row.values+"}\nlimits:\n  - name: x\n    "+row.limit+"\n    rate_limit: {unit: hour, requests_per_unit: 1}\n"), Config{})
		require.NoError(t, err)
		r := &http.Request{URL: &url.URL{Path: "/"}, RemoteAddr: "192.0.2.7:1", Header: http.Header{"X-Plan": {"198.51.100.1"}}}
		var tk queue.Ticket
		require.NoError(t, set.Limits(r, &tk))
		require.Equal(t, row.want, set.rules[0].limit.clientAddr(tk.Demands[0].Key).String(), row.limit)
	}
	require.Equal(t, netip.Addr{}, (&Limit{keys: []string{"a", "b"}, address: 1}).clientAddr("broken"))
}

// A key needs no more bytes than bytesPerKey, and at least half of it.
func TestBytesPerKey(t *testing.T) {
	if testing.Short() {
		t.Skip("only make test-long runs it")
	}
	for _, amount := range []string{
		"{unit: hour, requests_per_unit: 10}",
		"{unit: hour, requests_per_unit: 10, soft: 10%}",
		"{unit: hour, requests_per_unit: 10, algorithm: token_bucket}",
		"{unit: hour, requests_per_unit: 10, algorithm: sliding_counter}",
		"{unit: hour, requests_per_unit: 1100, algorithm: sliding_log}",
		"{unit: hour, requests_per_unit: 10000, algorithm: sliding_log}",
		"{unit: hour, requests_per_unit: 100, algorithm: sub_windows, granularity: 1s}",
		"{concurrency: 5000}",
	} {
		set, err := Parse([]byte("domain: d\ndescriptors:\n  - key: host\n    rate_limit: "+amount+"\n"), Config{})
		require.NoError(t, err)
		limit, l := set.rules[0].limit, set.rules[0].limiter
		const keys = 200
		before, now := heapBytes(), friday
		for i := range keys {
			for {
				now = now.Add(time.Millisecond)
				d, err := l.Reserve(context.Background(), throttle.Claim{Key: fmt.Sprint(i), Now: now})
				require.NoError(t, err)
				if !d.OK {
					break
				}
			}
		}
		got := (heapBytes() - before) / keys
		require.LessOrEqual(t, got, limit.bytesPerKey()+limit.bytesPerKey()/8, amount)
		require.GreaterOrEqual(t, 2*got, limit.bytesPerKey(), amount)
		require.LessOrEqual(t, limit.bytesPerKey()*int64(limit.maxKeys()), int64(maxTableBytes), amount)
		runtime.KeepAlive(set)
	}
	require.Equal(t, 1, (&Limit{Spec: throttle.SlidingLogConfig{Limit: throttle.PerHour(1 << 62)}}).maxKeys())
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Lint reports limits whose keys need more memory than there is by default.
func TestLint_memory(t *testing.T) {
	for amount, want := range map[string]string{
		"{unit: hour, requests_per_unit: 10000}":                                                    "",
		"{unit: hour, requests_per_unit: 100, algorithm: sliding_log}":                              "",
		"{unit: hour, requests_per_unit: 10000, algorithm: sliding_log}":                            "a key needs up to 257 KiB, so there is space for 1021 keys in 256 MiB instead of 65536",
		"{unit: hour, requests_per_unit: 10000, algorithm: sliding_log, max_keys: 65536}":           "a key needs up to 257 KiB, so that 65536 keys need up to 16 GiB",
		"{unit: hour, requests_per_unit: 10000, algorithm: sliding_log, max_keys: 500}":             "",
		"{unit: hour, requests_per_unit: 100, algorithm: token_bucket, compact: true, max_keys: 9}": "",
	} {
		found, err := Lint([]byte("domain: d\ndescriptors:\n  - key: remote_address\n    rate_limit: "+amount+"\n"), Config{})
		require.NoError(t, err)
		got := ""
		for _, f := range found {
			if f.Problem != "" && f.Problem[:2] == "a " && f.Problem[2:5] == "key" {
				got += f.Problem
			}
		}
		require.Equal(t, want, got, amount)
	}
}
