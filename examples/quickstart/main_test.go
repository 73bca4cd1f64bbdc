package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/debugpage"
)

func TestRun_heedFinishesWherePlainFails(t *testing.T) {
	var out strings.Builder
	j := job{n: 30, c: 10, rate: 20, burst: 20}
	require.NoError(t, j.run(&out, true, false))
	plain, heed := results(t, out.String())
	require.Equal(t, int64(30), plain.Sent)
	require.Positive(t, plain.Throttled)
	require.Equal(t, plain.Throttled, plain.Failed)
	require.Equal(t, "heed", heed.Client)
	require.Zero(t, heed.Failed)
	require.Equal(t, 0.5, *heed.Ideal)
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
	j := job{n: 30, c: 10, rate: 20, burst: 20, page: new(debugpage.Page)}
	url, err := servePage(j.page)
	require.NoError(t, err)
	require.NoError(t, j.run(io.Discard, true, false))
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(page), "left of 20 requests")
	require.Contains(t, string(page), "waited ")
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
