package routes

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A route is healthy if 10 of its latest 20 responses were a 2xx.
func TestHistories_knowHealthyRoutes(t *testing.T) {
	seed := maphash.MakeSeed()
	const other, named, write = 'o', 'n', 'w' // a 200 of another route, of a quota name, or to a write
	for _, tt := range []struct {
		name      string
		responses string // 2: 200, 0: 204, 3: 304, 4: 404, f: 403, 9: 429, or one of the above
		healthy   bool
	}{
		{"none", "", false},
		{"nine", "222222222", false},
		{"ten", "2222222222", true},
		{"ten of any 2xx", "2020202020", true},
		{"ten that are not successful", "4444444444", false},
		{"304 is no 2xx", "2222222223", false},
		{"failures first", "4444444444" + "2222222222", true},
		{"failures last", "2222222222" + "4444444444", true},
		{"a failure too many", "2222222222" + "44444444444", false},
		{"403s", "22222222222222222222" + "ffffffffff", true},
		{"a 403 too many", "22222222222222222222" + "fffffffffff", false},
		{"only the latest 20 count", strings.Repeat("2", 100) + "fffffffffff", false},
		{"healthy again", strings.Repeat("f", 20) + "2222222222", true},
		{"a rejection counts", "2222222222" + "99999999999", false},
		{"another route", "222222222" + strings.Repeat(string(other), 20), false},
		{"another route fails", "2222222222" + strings.Repeat("m", 20), true},
		{"a named quota", "222222222" + strings.Repeat(string(named), 20), false},
		{"writes", "222222222" + strings.Repeat(string(write), 20), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h Histories
			statuses := map[rune]int{'0': 204, '3': 304, '4': 404, 'f': 403, '9': 429, 'm': 403}
			for i, r := range tt.responses {
				req := request(t, fmt.Sprintf("https://api.test/users/%d", i)) // one route
				switch r {
				case other, 'm':
					req = request(t, "https://api.test/issues")
				case named:
					req = req.WithContext(WithName(t.Context(), "gpt"))
				case write:
					req.Method = http.MethodPut
				}
				status := 200
				if s, ok := statuses[r]; ok {
					status = s
				}
				h.Record(seed, req, status)
			}
			req := request(t, "https://api.test/users/17")
			require.Equal(t, tt.healthy, h.Record(seed, req, 403))
		})
	}
}

// The latest 32 routes are remembered. One that never succeeded takes no place.
func TestHistories_rememberTheLatestRoutes(t *testing.T) {
	var h Histories
	seed := maphash.MakeSeed()
	record := func(n, status int) bool { return h.Record(seed, request(t, "https://api.test/"+slug(n)), status) }
	for n := range maxHistories {
		for range 10 {
			record(n, 200)
		}
	}
	for n := range 2 * maxHistories {
		record(1000+n, 404)
	}
	for n := range maxHistories {
		require.True(t, record(n, 404), n)
	}
	for range 10 {
		record(2000, 200)
	}
	require.True(t, record(2000, 404))
	require.True(t, record(1, 404))
	require.False(t, record(0, 404), "the route that began first")
}

// Of responses that arrive together on several goroutines, each one counts.
func TestHistories_recordConcurrently(t *testing.T) {
	var h Histories
	req, seed := request(t, "https://api.test/users/17"), maphash.MakeSeed()
	h.Record(seed, req, 200)
	inParallel := func(each, status int) int64 {
		var wg sync.WaitGroup
		var healthy atomic.Int64
		start := make(chan struct{})
		for range 4 {
			wg.Go(func() {
				<-start
				for range each {
					if h.Record(seed, req, status) {
						healthy.Add(1)
					}
				}
			})
		}
		close(start)
		wg.Wait()
		return healthy.Load()
	}
	inParallel(5, 200)
	for range 1000 {
		require.EqualValues(t, 11, inParallel(5, 403), "until 11 of the latest 20 are 403s")
		require.EqualValues(t, 10, inParallel(5, 200), "the first 10 are needed")
	}
}

func TestHistories_recordDoesNotAllocate(t *testing.T) {
	var h Histories
	seed := maphash.MakeSeed()
	for _, url := range []string{"https://api.test/users/17", "https://api.test/", "https://api.test/" + strings.Repeat("a-long-segment-of-words/", 20)} {
		req := request(t, url)
		require.Zero(t, testing.AllocsPerRun(100, func() { h.Record(seed, req, 200) }), url)
	}
}
