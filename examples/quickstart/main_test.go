package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/debugpage"
	"github.com/heed-go/heed/internal/memhttp"
)

// inMemory runs f in a synctest bubble, in which each API of server runs in memory.
func inMemory(t *testing.T, f func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		network, transport := listen, http.DefaultTransport
		defer func() { listen, http.DefaultTransport = network, transport }()
		listen = func(string, string) (net.Listener, error) {
			l := memhttp.NewListener()
			http.DefaultTransport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }}
			return l, nil
		}
		f(t)
	})
}

func TestRun_heedFinishesWherePlainFails(t *testing.T) {
	inMemory(t, func(t *testing.T) {
		var out strings.Builder
		j := job{n: 30, c: 10, rate: 20, burst: 20}
		require.NoError(t, j.run(&out, true, false))
		plain, heed := results(t, out.String())
		require.Equal(t, int64(30), plain.Sent)
		require.Equal(t, int64(10), plain.Throttled)
		require.Equal(t, plain.Throttled, plain.Failed)
		require.Equal(t, "heed", heed.Client)
		require.Zero(t, heed.Failed)
		require.Equal(t, 0.5, *heed.Ideal)
	})
}

func TestRun_anotherServer(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	var out strings.Builder
	require.NoError(t, job{url: s.URL, n: 3, c: 2}.run(&out, true, false))
	plain, heed := results(t, out.String())
	require.Nil(t, plain.Ideal, "nobody knows")
	require.Equal(t, int64(3), plain.Failed)
	require.Equal(t, int64(3), heed.Failed)
	require.Contains(t, out.String(), `{"client":"plain","calls":3,"sent":3,"throttled":0,"failed":3,"elapsed_s":`)
}

func TestRun_tableAndProgress(t *testing.T) {
	var out strings.Builder
	require.NoError(t, job{n: 2, c: 1, rate: 5, burst: 5}.run(&out, false, true))
	for _, want := range []string{"plain: ", " of 2", "client   calls   sent   throttled   failed", "0.00 s"} {
		require.Contains(t, out.String(), want)
	}
}

func TestRun_pageShowsTheQuota(t *testing.T) {
	inMemory(t, func(t *testing.T) {
		j := job{n: 30, c: 10, rate: 20, burst: 20, page: new(debugpage.Page)}
		require.NoError(t, j.run(io.Discard, true, false))
		w := httptest.NewRecorder()
		j.page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		require.Contains(t, w.Body.String(), "left of 20 requests")
		require.Contains(t, w.Body.String(), "waited ")
	})
}

func TestServePage(t *testing.T) {
	url, err := servePage(&debugpage.Page{Title: "quickstart"})
	require.NoError(t, err)
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(page), "quickstart")
}

func TestRun_invalidFlags(t *testing.T) {
	for want, j := range map[string]job{
		"-n 0 -c 1: both must be positive": {n: 0, c: 1},
		"Count is -1: it must be positive": {n: 1, c: 1, rate: -1, burst: 1},
		"-burst 0: it must be positive":    {n: 1, c: 1, rate: 1},
	} {
		require.ErrorContains(t, j.run(nil, true, false), want)
	}
}

// results returns the two lines of JSON in out.
func results(t *testing.T, out string) (plain, heed result) {
	lines := strings.SplitAfter(out, "\n")
	require.Len(t, lines, 3)
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &plain))
	require.NoError(t, json.Unmarshal([]byte(lines[1]), &heed))
	return plain, heed
}
