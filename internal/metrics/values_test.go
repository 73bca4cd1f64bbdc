package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

func TestValidValue(t *testing.T) {
	for s, want := range map[string]string{
		"":                             "",
		"a\xffb":                       "a?b",
		strings.Repeat("x", 100):       strings.Repeat("x", 100),
		strings.Repeat("x", 101):       strings.Repeat("x", 100),
		strings.Repeat("x", 99) + "é":  strings.Repeat("x", 99),
		strings.Repeat("x", 98) + "éy": strings.Repeat("x", 98) + "é",
	} {
		require.Equal(t, want, validValue(s))
	}
}

func TestBounded_keepsTheFirstValues(t *testing.T) {
	b := bounded{max: 2}
	for range 2 {
		require.Empty(t, b.value(""))
		require.Equal(t, "a", b.value("a"))
		require.Equal(t, "b", b.value("b"))
		require.Equal(t, otherValue, b.value("c"))
	}
	require.Len(t, b.known, 2)
	s := servers{recentSet: recentSet[server]{max: 1}}
	for range 2 {
		for _, host := range []string{"a.test", "A.test", "a.test.", "a.test:443", "A.test:443"} {
			require.Equal(t, server{"a.test", ""}, s.at(hostKey{"https", host}), host)
		}
		require.Equal(t, otherServer, s.at(hostKey{"https", "a.test:80"}))
	}
	for i := range 10 {
		s.at(hostKey{"https", fmt.Sprint("h", i)})
		require.LessOrEqual(t, len(s.spellings), 4)
	}
}

// TestNewRecorder_bounds checks the number of values of each attribute.
func TestNewRecorder_bounds(t *testing.T) {
	r := NewRecorder(recording{}, 0)
	for name, tt := range map[string]struct {
		value func(string) string
		want  int
	}{
		"servers": {func(s string) string { return r.servers.at(hostKey{"https", s}).address }, 100},
		"limits":  {r.limits.value, 100},
		"quotas":  {r.quotas.value, 100},
		"units":   {r.units.value, 20},
		"types":   {r.types.value, 50},
	} {
		values := map[string]bool{}
		for i := range 200 {
			values[tt.value(fmt.Sprint("v", i))] = true
		}
		require.Len(t, values, tt.want+1, name)
		require.True(t, values[otherValue], name)
	}
}

func TestMethodAndStatusValues(t *testing.T) {
	for method, want := range map[string]string{
		"": "GET", "GET": "GET", "HEAD": "HEAD", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE",
		"CONNECT": "CONNECT", "OPTIONS": "OPTIONS", "TRACE": "TRACE", "get": otherValue, "PROPFIND": otherValue,
	} {
		require.Equal(t, want, methodValue(method), method)
	}
	for status, want := range map[int]string{-1: "", 0: "", 99: "", 100: "100", 200: "200", 599: "599", 600: "", 1000: ""} {
		require.Equal(t, want, statusValue(status), status)
	}
}

func TestErrorType(t *testing.T) {
	r := NewRecorder(recording{}, 0)
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{context.Canceled, ""},
		{throttle.ErrRejected, "rejected"},
		{heed.ErrMaxWait, "rejected"},
		{context.DeadlineExceeded, "timeout"},
		{os.ErrDeadlineExceeded, "timeout"},
		{queue.ErrClosed, "errors.errorString"},
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, "net.OpError"},
		{fmt.Errorf("wrapped: %w", &net.DNSError{}), "net.DNSError"},
		{&heed.GiveUpError{Err: syscall.ECONNRESET, Reason: heed.ErrMaxAttempts}, "syscall.Errno"},
		{&heed.GiveUpError{Reason: errors.New("reason")}, "errors.errorString"},
	} {
		require.Equal(t, tt.want, r.ErrorType(t.Context(), tt.err), "%v", tt.err)
	}
}

// TestInstruments_buckets checks the documented bounds: dashboards and alerts use them.
func TestInstruments_buckets(t *testing.T) {
	seconds := []float64{.005, .025, .1, .25, .5, 1, 2, 4, 8, 15, 30, 60, 120}
	for _, i := range Instruments() {
		switch {
		case i.Kind == Histogram && i.Unit == "s" && strings.HasPrefix(i.Name, "heed.client."):
			require.Equal(t, seconds, i.Buckets[:len(seconds)], i.Name)
		case i.Name == "heed.client.call.retries":
			require.Equal(t, []float64{1, 2, 3, 4, 5}, i.Buckets)
		}
	}
}
