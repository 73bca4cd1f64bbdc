package rules

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/adapter"
	"github.com/heed-go/heed/throttle/queue"
)

// TestBundle_beginsWithOneLimitTooMany checks how many limits of a request have a demand of
// their own, and that keys of several requests stay apart.
func TestBundle_beginsWithOneLimitTooMany(t *testing.T) {
	for extra, alone := range map[int]int{-1: queue.MaxDemands - 1, 0: queue.MaxDemands, 1: queue.MaxDemands - 1, 3: queue.MaxDemands - 1} {
		text := "domain: d\nvalues: {a: {header: A}, b: {header: B}}\nlimits:\n"
		for i := range queue.MaxDemands + extra {
			text += fmt.Sprintf("- {name: l%d, key: [a, b], rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
		}
		set, err := Parse([]byte(text), Config{})
		require.NoError(t, err)
		for n, user := range []string{"1", "22", "333", "1"} {
			var ticket queue.Ticket
			set.Limits(&http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Header: http.Header{"A": {user}, "B": {user}}}, &ticket)
			own := 0
			for _, d := range ticket.Demands {
				if _, ok := d.Limiter.(*activeLimit); ok {
					own++
				}
			}
			require.Equal(t, alone, own, "%d limits", queue.MaxDemands+extra)
			d, err := ticket.Reserve(t.Context(), time.Time{})
			require.NoError(t, err)
			require.Equal(t, n < 3, d.OK, "%d limits, user %s", queue.MaxDemands+extra, user)
		}
	}
}

// TestBundle_sharesTheQueuesOfItsLimits checks what a queue takes each member of a bundle for. A
// limit with a cost of its own does not share a queue.
func TestBundle_sharesTheQueuesOfItsLimits(t *testing.T) {
	text := "domain: d\nvalues: {a: {header: A}}\nlimits:\n"
	for i := range queue.MaxDemands + 1 {
		text += fmt.Sprintf("- {name: l%d, key: a, rate_limit: {unit: day, requests_per_unit: 9, cost: %d}}\n", i, max(i-2, 1))
	}
	set, err := Parse([]byte(text), Config{})
	require.NoError(t, err)
	var ticket queue.Ticket
	require.NoError(t, set.Limits(&http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Header: http.Header{"A": {"user"}}}, &ticket))
	bundle := ticket.Demands[queue.MaxDemands-1]
	parts := bundle.Limiter.Traits().Parts
	require.Len(t, parts, 2)
	for i, want := range []adapter.Target{{Limiter: set.rules[3].limiter, Key: "user"}, {Limiter: parts[1], Key: bundle.Key}} {
		require.Equal(t, want, parts[i].(adapter.Adapter).Adapted(bundle.Key))
	}
}

// TestParse_reportsADescriptorOnce checks faults after which the rest of a descriptor is not
// read.
func TestParse_reportsADescriptorOnce(t *testing.T) {
	deep, tail := "domain: d\n", ""
	for range maxDepth {
		deep, tail = deep+"descriptors: [{key: k, ", "}]"+tail
	}
	for _, text := range []string{deep + "descriptors: [{value: x}, {value: y}]" + tail, "domain: d\ndescriptors: [{value: x, rate_limit: {unlimited: true}}]"} {
		_, err := Parse([]byte(text), Config{})
		require.Error(t, err)
		require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), 1, "%v", err)
	}
}
