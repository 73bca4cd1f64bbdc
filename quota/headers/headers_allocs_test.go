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
	github, plain, now := githubHeader(), headerWithoutLimits(), time.Unix(1700000000, 0)
	Parse(200, github, now)
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() { Parse(200, github, now) }), 1.0)
	require.LessOrEqual(t, testing.AllocsPerRun(200, func() { Parse(200, plain, now) }), 0.0)
}

func TestWrite_allocatesTwice(t *testing.T) {
	h, r := http.Header{}, twoLimits()
	const all = XRateLimit | Draft03 | Draft10 | XRetryAfter
	Write(h, all, r)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { Write(h, all, r) }), 2.0)
}
