package heed

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/stretchr/testify/require"
)

// TestTransport_survivesHostileResponses sends invalid and extreme responses, three times
// each. No response may delay the next call for long: a reset or Retry-After of more than
// a year counts as a year, so that the following calls fail immediately.
func TestTransport_survivesHostileResponses(t *testing.T) {
	limits := func(limit, remaining, reset string) string {
		return "X-RateLimit-Limit: " + limit + "\r\nX-RateLimit-Remaining: " + remaining + "\r\nX-RateLimit-Reset: " + reset + "\r\n"
	}
	const most = "9223372036854775807"
	for name, tt := range map[string]struct {
		head   string
		status int // 0 for an error
		sent   int // number of attempts of three calls
	}{
		"many interim answers":     {strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", 6) + "HTTP/1.1 200 OK\r\n", 200, 3},
		"no HTTP":                  {"\x00\x01\x02\r\n", 0, 15},
		"no status":                {"HTTP/1.1 999 \r\n", 999, 3},
		"a limit of 0":             {"HTTP/1.1 200 OK\r\n" + limits("0", "0", "0"), 200, 3},
		"less than nothing left":   {"HTTP/1.1 200 OK\r\n" + limits("10", "-"+most, "1"), 200, 3},
		"more left than the limit": {"HTTP/1.1 200 OK\r\n" + limits("1", most, "1"), 200, 3},
		"no end of limits":         {"HTTP/1.1 200 OK\r\n" + manyLimits(5000), 200, 3},
		"limits without number":    {"HTTP/1.1 200 OK\r\n" + limits(strings.Repeat("9", 5000), "NaN", "Inf"), 200, 3},
		"a reset that never comes": {"HTTP/1.1 200 OK\r\n" + limits("1", "0", most), 200, 3},
		"a wait after a success":   {"HTTP/1.1 200 OK\r\nRetry-After: " + most + "\r\n", 200, 3},
		"a wait without end":       {"HTTP/1.1 503 Later\r\nRetry-After: " + most + "\r\n", 503, 3},
		"a wait without number":    {"HTTP/1.1 503 Later\r\nRetry-After: 1e999\r\n", 503, 15},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				base := newRawTransport(t, func(w io.Writer, r *bufio.Reader) error {
					req, err := http.ReadRequest(r)
					if err != nil {
						return err
					}
					io.Copy(io.Discard, req.Body)
					sent++
					_, err = io.WriteString(w, tt.head+"Content-Length: 0\r\n\r\n")
					return err
				})
				defer base.CloseIdleConnections()
				tr, start := &Transport{Base: base}, time.Now()
				for range 3 {
					resp, err := get(t, tr)
					require.Equal(t, tt.status == 0, err != nil, err)
					if err == nil {
						require.Equal(t, tt.status, resp.StatusCode)
						resp.Body.Close()
					}
				}
				require.Equal(t, tt.sent, sent)
				require.Less(t, time.Since(start), time.Minute)
			})
		})
	}
}

func manyLimits(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "X-RateLimit-Limit-%d: 1\r\nX-RateLimit-Remaining-%d: 0\r\n", i, i)
	}
	return b.String()
}

// newRawTransport returns a transport whose connections are served by answer, which
// writes raw bytes, until it fails.
func newRawTransport(t *testing.T, respond func(io.Writer, *bufio.Reader) error) *http.Transport {
	l := memhttp.NewListener()
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); respond(c, r) == nil; {
				}
			}()
		}
	}()
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
}
