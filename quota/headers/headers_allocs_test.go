//go:build !race

package headers

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test is excluded with -race, because a sync.Pool then drops objects at random.

func TestParse_allocatesOnlyLimits(t *testing.T) {
	now := time.Unix(1700000000, 0)
	retryAfter := http.Header{"Retry-After": {"30"}}
	for _, c := range []struct {
		header http.Header
		most   float64
	}{
		{githubHeader(), 1}, {githubFullHeader(), 1}, {githubResponseHeader(), 1}, {headerOfMany(1500), 1},
		{headerWithoutLimits(), 0}, {retryAfter, 0}, {nil, 0},
	} {
		Parse(200, c.header, now)
		require.LessOrEqual(t, testing.AllocsPerRun(200, func() { Parse(200, c.header, now) }), c.most, c.header)
	}
}

func TestWrite_allocatesTwice(t *testing.T) {
	h, r := http.Header{}, twoLimits()
	const all = XRateLimit | Draft03 | Draft10 | XRetryAfter
	Write(h, all, r)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { Write(h, all, r) }), 2.0)
}
