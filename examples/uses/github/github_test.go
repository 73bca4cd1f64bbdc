package github

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// TestAPI_limits checks the limits of the local server one after the other.
func TestAPI_limits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAPI(new(scenario.Counts), 250)
		post := func(issue int) heedtest.Response {
			return a.respond(heedtest.Request{Method: http.MethodPost, URL: "/repos/o/r/issues/" + strconv.Itoa(issue) + "/labels"})
		}
		for i := range 100 {
			require.Equal(t, http.StatusOK, post(i).Status)
		}
		concurrent := post(100)
		require.Equal(t, http.StatusForbidden, concurrent.Status)
		require.Equal(t, "60", concurrent.Header.Get("Retry-After"))
		time.Sleep(latency)
		for i := range 79 {
			require.Equal(t, http.StatusOK, post(100+i).Status)
		}
		require.Equal(t, http.StatusForbidden, post(179).Status, "900 points in a minute")
		require.Contains(t, post(179).Body, "#about-secondary-rate-limits")

		a.primary.Used = a.primary.Limit
		exhausted := post(180)
		require.Equal(t, http.StatusForbidden, exhausted.Status)
		require.Equal(t, "0", exhausted.Header.Get("X-RateLimit-Remaining"))
		require.Empty(t, exhausted.Header.Get("Retry-After"))
		time.Sleep(time.Until(a.primary.End))
		require.Equal(t, "4999", post(180).Header.Get("X-RateLimit-Remaining"))
	})
}

func TestAPI_pages(t *testing.T) {
	a := newAPI(new(scenario.Counts), 250)
	list := func(query string) (n int, link string) {
		resp := a.respond(heedtest.Request{Method: http.MethodGet, URL: "/repos/o/r/issues?" + query})
		var issues []struct{ Number int }
		require.NoError(t, json.Unmarshal([]byte(resp.Body), &issues))
		return len(issues), resp.Header.Get("Link")
	}
	n, link := list("per_page=100")
	require.Equal(t, 100, n)
	require.Equal(t, `<https://api.github.com/repos/o/r/issues?page=2&per_page=100>; rel="next"`, link)
	n, link = list("per_page=100&page=3")
	require.Equal(t, 50, n)
	require.Empty(t, link)
}
