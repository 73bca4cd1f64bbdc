package rules

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// fileWithRules returns the text of a file with n rules. Two descriptors and two routes apply to
// the same request.
func fileWithRules(n int) string {
	var b strings.Builder
	b.WriteString("domain: d\nvalues: {user: {header: X-User}}\ndescriptors:\n")
	amount := "rate_limit: {unit: second, requests_per_unit: 1000000000, algorithm: token_bucket}"
	fmt.Fprintf(&b, "- {key: remote_address, %s}\n", amount)
	for i := range n / 2 {
		fmt.Fprintf(&b, "- {key: user, value: u%d, %s}\n", i, amount)
	}
	fmt.Fprintf(&b, "limits:\n- {name: all, match: /, %s}\n", amount)
	for i := range n - n/2 {
		fmt.Fprintf(&b, "- name: n%d\n  match: GET h%d.example.com/a/{id}/b%d\n  key: user\n  %s\n", i, i%7, i, amount)
	}
	return b.String()
}

// ticketFinder returns a function that finds the limits of one request among n rules.
func ticketFinder(tb testing.TB, n int) func() *queue.Ticket {
	set, err := Parse([]byte(fileWithRules(n)), Config{})
	require.NoError(tb, err)
	i := n / 4
	r := readRequest(tb, fmt.Sprintf("GET /a/7/b%d\nX-User: u%d", i, i))
	r.Host = fmt.Sprintf("h%d.example.com", i%7)
	ticket := new(queue.Ticket)
	return func() *queue.Ticket {
		*ticket = queue.Ticket{Demands: ticket.Demands[:0]}
		set.Limits(r, ticket)
		return ticket
	}
}

// TestSet_limitsDoesNotAllocate counts allocations for one request with four limits: to find them,
// and to reserve units of them.
func TestSet_limitsDoesNotAllocate(t *testing.T) {
	find := ticketFinder(t, 100)
	require.Len(t, find().Demands, 4)
	if raceEnabled {
		return // the race detector drops pooled objects
	}
	require.Zero(t, testing.AllocsPerRun(1000, func() { find() }))
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		ticket := find()
		if _, err := ticket.Reserve(context.Background(), time.Time{}); err != nil {
			t.Error(err)
		}
		ticket.Report(context.Background(), throttle.Feedback{})
	}))
}

// BenchmarkLimits finds the four limits of a request among 10 to 10,000 rules, and reserves units
// of them.
func BenchmarkLimits(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10_000} {
		find := ticketFinder(b, n)
		b.Run(fmt.Sprintf("find/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				find()
			}
		})
		b.Run(fmt.Sprintf("pass/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ticket := find()
				_, _ = ticket.Reserve(b.Context(), time.Time{})
				ticket.Report(b.Context(), throttle.Feedback{})
			}
		})
	}
}
