package main

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/bench/internal/simulation"
)

// field returns rows that nothing was tuned for: traffic and faults that a review of the tracker took
// from the field, and that cost heed more calls or time than they cost other clients.
func field() (all []row) {
	add := func(name string, site simulation.Site, loads ...simulation.Load) *row {
		if site.Latency == (simulation.Latency{}) {
			site.Latency.Mean = quick
		}
		all = append(all, row{"field", name, simulation.Scenario{Loads: loads, Site: site}, goal{peers: peers, points: .5, times: 1.2}})
		return &all[len(all)-1]
	}
	for _, rows := range []func(adder){
		slowServers, coldStarts, longPolls, strayRejections, partialFaults, outages, permissions, statements, usedUp,
	} {
		rows(add)
	}
	return all
}

// An adder adds a row, and returns it.
type adder func(name string, site simulation.Site, loads ...simulation.Load) *row

// at is a minute of calls, so many a second.
func at(rate int, deadline time.Duration) simulation.Load { return lasting(60, rate, deadline) }

func lasting(seconds, rate int, deadline time.Duration) simulation.Load {
	return simulation.Load{Calls: seconds * rate, Interval: second / time.Duration(rate), Deadline: deadline}
}

// post is calls of a language model.
func post(workers, calls int, deadline time.Duration) simulation.Load {
	return simulation.Load{Calls: calls, Workers: workers, Deadline: deadline, Method: http.MethodPost}
}

func constant(d time.Duration) simulation.Site {
	return simulation.Site{Latency: simulation.Latency{Mean: d}}
}

func failing(faults ...simulation.Fault) simulation.Site { return simulation.Site{Faults: faults} }

// slowServers have no fault and no limit.
func slowServers(add adder) {
	for _, x := range []struct {
		rate              int
		latency, deadline time.Duration
		noise             float64
	}{
		{100, 250 * ms, short, 0}, {100, 600 * ms, second, 0}, {100, 800 * ms, second, 0}, {100, 1500 * ms, 2 * second, 0}, {100, 4 * second, long, 0},
		{20, 400 * ms, 500 * ms, 0}, {20, 1500 * ms, 2 * second, 0}, {20, 4 * second, long, 0}, {100, 200 * ms, short, 0},
		{100, 150 * ms, short, 0}, {100, 500 * ms, second, 0}, {100, second, 2 * second, 0}, {100, 2 * second, long, 0},
		{100, 100 * ms, short, .5}, {100, 100 * ms, short, 1}, {100, second, long, .5}, {100, second, long, 1}, {20, 2 * second, long, 1},
	} {
		name := noisy(fmt.Sprintf("no fault, %d/s, latency %v of %v", x.rate, x.latency, x.deadline), x.noise)
		add(name, simulation.Site{Latency: simulation.Latency{Mean: x.latency, Noise: x.noise}}, at(x.rate, x.deadline))
	}
	add("no fault, 50 workers, latency 250ms of 300ms", constant(250*ms), simulation.Load{Calls: 6000, Workers: 50, Deadline: short})
	models := simulation.Site{Latency: simulation.Between(second, 3*second)}
	stated := models
	stated.Statement = says("X-Ratelimit-Limit", "5000", "X-Ratelimit-Remaining", "4900", "X-Ratelimit-Reset", "3600")
	slow := simulation.Site{Latency: simulation.Between(10*second, 30*second)}
	heavy := simulation.Site{Latency: simulation.Latency{Mean: 2 * second, Noise: 1}}
	add("language model, 100 workers, 1 to 3 s of 4 s", models, post(100, 3000, 4*second))
	add("language model, 100 workers, 1 to 3 s of 10 s", models, post(100, 3000, 10*second))
	add("language model, 200 workers, 10 to 30 s of 40 s", slow, post(200, 2000, 40*second))
	add("language model, 100 workers, 1 to 3 s of 4 s, 4900 of 5000 left", stated, post(100, 3000, 4*second))
	add("language model, 100 workers, 1 to 3 s of 10 s, 4900 of 5000 left", stated, post(100, 3000, 10*second))
	add("language model, 100 workers, mean 2 s of 10 s, noise 1", heavy, post(100, 3000, 10*second))
	add("language model, 100 workers, mean 2 s, no deadline, noise 1", heavy, post(100, 3000, 0))
}

// coldStarts are many calls at the same moment to a new host.
func coldStarts(add adder) {
	for _, deadline := range []time.Duration{long, short} {
		add(fmt.Sprintf("1000 goroutines, 50ms of %v", deadline), constant(50*ms), simulation.Load{Calls: 1000, Deadline: deadline})
		add(fmt.Sprintf("1000 workers, 50ms of %v, 10000 calls", deadline), constant(50*ms), simulation.Load{Calls: 10_000, Workers: 1000, Deadline: deadline})
		add(fmt.Sprintf("100 goroutines, 200ms of %v", deadline), constant(200*ms), simulation.Load{Calls: 100, Deadline: deadline})
		add(fmt.Sprintf("500 accounts of 20 calls each, 20ms of %v", deadline), constant(20*ms),
			simulation.Load{Calls: 10_000, Deadline: deadline, Tenants: 500, TenantField: "Authorization"})
	}
	add("100 goroutines, mean 100ms of 5s, noise 1", simulation.Site{Latency: simulation.Latency{Mean: 100 * ms, Noise: 1}}, simulation.Load{Calls: 100, Deadline: long})
}

// longPolls are beside short calls to a new host.
func longPolls(add adder) {
	polls := func(n int, after time.Duration) simulation.Load {
		return simulation.Load{Calls: n, After: after, Latency: simulation.Latency{Mean: poll}}
	}
	for _, n := range []int{5, 20} {
		for _, deadline := range []time.Duration{long, short} {
			add(fmt.Sprintf("%d polls of 30s beside 50/s, deadline %v", n, deadline), simulation.Site{}, polls(n, 0), lasting(80, 50, deadline))
		}
	}
	add("20 polls of 30s after 0.5s beside 50/s, deadline 5s", simulation.Site{}, polls(20, 500*ms), lasting(80, 50, long))
}

// strayRejections are those of a share of all requests.
func strayRejections(add adder) {
	for _, x := range []struct {
		percent  float64
		deadline time.Duration
	}{{.1, short}, {1, short}, {5, short}, {1, long}, {5, long}} {
		for _, g := range []string{"aws", "code", "nginx", "empty", ""} {
			f := simulation.Fault{Share: x.percent / 100, Status: 429, Gateway: g}
			if g == "" {
				g = "any gateway"
			}
			add(fmt.Sprintf("429 %v %%, deadline %v, body of %s", x.percent, x.deadline, g), failing(f), at(100, x.deadline))
		}
	}
	for _, status := range []int{503, 529} {
		for _, percent := range []float64{1, 5} {
			f := simulation.Fault{Share: percent / 100, Status: status, Gateway: "anthropic"}
			add(fmt.Sprintf("%d %v %%, body of anthropic, GET", status, percent), failing(f), at(100, long))
			calls := at(100, long)
			calls.Method = http.MethodPost
			add(fmt.Sprintf("%d %v %%, body of anthropic, POST", status, percent), failing(f), calls)
		}
	}
	for _, status := range []int{429, 503} {
		for _, percent := range []float64{1, 2, 3} {
			f := simulation.Fault{Share: percent / 100, Status: status, RetryAfter: []int{1}}
			add(fmt.Sprintf("%d Retry-After: 1 %v %%", status, percent), failing(f), lasting(120, 100, long))
		}
		f := simulation.Fault{Share: .02, Status: status, RetryAfter: []int{1, 2, 5, 30}}
		add(fmt.Sprintf("%d Retry-After: 1, 2, 5 or 30 2 %%", status), failing(f), lasting(120, 100, long))
	}
}

// partialFaults are those of a backend, a resource, a tenant or a route.
func partialFaults(add adder) {
	of := func(kind simulation.Kind, share float64, status int, retryAfter ...int) simulation.Fault {
		return simulation.Fault{Of: kind, Share: share, Status: status, RetryAfter: retryAfter}
	}
	backends := func(n int, f ...simulation.Fault) simulation.Site { return simulation.Site{Backends: n, Faults: f} }
	for _, deadline := range []time.Duration{long, short} {
		add(fmt.Sprintf("one backend of 20, 429 Retry-After: 1, deadline %v", deadline), backends(20, of(simulation.Backends, .05, 429, 1)), at(100, deadline))
	}
	add("one backend of 20, 429 Retry-After: 60", backends(20, of(simulation.Backends, .05, 429, 60)), at(100, long))
	add("one backend of 20, 503 Retry-After: 10", backends(20, of(simulation.Backends, .05, 503, 10)), at(100, long))
	usedUp := of(simulation.Backends, .05, 429)
	usedUp.Header = fields("X-Ratelimit-Limit", "100", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "30")
	add("one backend of 20, 429 with 0 of 100 left for 30 s", backends(20, usedUp), at(100, long))
	for _, share := range []float64{.1, 1. / 3} {
		for _, retryAfter := range [][]int{{1}, {}, {30}} {
			f := of(simulation.Backends, share, 503, retryAfter...)
			f.From, f.To = 10*second, 40*second
			add(fmt.Sprintf("deployment: %.0f %% of 30 backends 503 Retry-After: %v for 30 s of 90", 100*share, retryAfter), backends(30, f), lasting(90, 100, long))
		}
		f := of(simulation.Backends, share, 503, 1)
		f.To = 30 * second
		add(fmt.Sprintf("deployment: %.0f %% of 30 backends 503 Retry-After: 1 for 30 s of 300", 100*share), backends(30, f), lasting(300, 100, long))
	}
	resources, tenants, cookies, accounts, routes := at(100, long), at(100, long), at(100, long), at(100, long), at(100, long)
	resources.Resources, tenants.Tenants, cookies.Tenants, accounts.Tenants, routes.Routes = 50, 100, 100, 100, 20
	cookies.TenantField, accounts.TenantField = "Cookie", "Authorization"
	for _, retryAfter := range []int{1, 30} {
		name := fmt.Sprintf("429 Retry-After: %d", retryAfter)
		add("one resource of 50, "+name, failing(of(simulation.Resources, .02, 429, retryAfter)), resources)
		tenant := failing(of(simulation.Tenants, .01, 429, retryAfter))
		add("one tenant of 100, by X-Tenant-Id, "+name, tenant, tenants)
		add("one tenant of 100, by Cookie, "+name, tenant, cookies)
		add("one tenant of 100, by Authorization, "+name, tenant, accounts)
		add("two routes of 20, "+name, failing(of(simulation.Routes, .1, 429, retryAfter)), routes)
	}
	add("two routes of 20, bare 429", failing(of(simulation.Routes, .1, 429)), routes)
	add("one 429 Retry-After: 30 of one tenant of 100", failing(simulation.Fault{After: 1000, Requests: 1, Status: 429, RetryAfter: []int{30}}), tenants)
	add("one 429 Retry-After: 3600 of one tenant of 100", failing(simulation.Fault{After: 1000, Requests: 1, Status: 429, RetryAfter: []int{3600}}), tenants)
	many := at(100, long)
	many.Resources, many.Routes = 10_000, 250
	add("1 % of 10000 resources, 429 Retry-After: 30", failing(of(simulation.Resources, .01, 429, 30)), many)
	// A client that does not retry is faster and fails no more, so it is no measure.
	bulk := simulation.Load{Calls: 2000, Workers: 20, Tenants: 100, Resources: 100}
	add("one tenant of 100, bare 429, 20 workers", failing(of(simulation.Tenants, .01, 429)), bulk).goal.peers = retries
	add("2 % of 100 resources, always 502, 20 workers", failing(of(simulation.Resources, .02, 502)), bulk).goal.peers = retries
}

// outages are intervals in which all requests fail.
func outages(add adder) {
	for _, x := range []struct {
		f        simulation.Fault
		name     string
		length   time.Duration
		deadline time.Duration
	}{
		{simulation.Fault{Status: 503}, "503", second, short}, {simulation.Fault{Drop: true}, "drop", second, short},
		{simulation.Fault{Status: 503}, "503", 500 * ms, short}, {simulation.Fault{Status: 503}, "503", 500 * ms, long},
		{simulation.Fault{Status: 503}, "503", second, long}, {simulation.Fault{Status: 429}, "429", second, short},
		{simulation.Fault{Status: 403}, "403 (firewall)", 2 * second, short},
		{simulation.Fault{Status: 503, RetryAfter: []int{1}}, "503 Retry-After: 1", 30 * second, long},
		{simulation.Fault{Status: 429, RetryAfter: []int{1}}, "429 Retry-After: 1", 30 * second, long},
		{simulation.Fault{Status: 503, RetryAfter: []int{1}}, "503 Retry-After: 1", 30 * second, short},
		{simulation.Fault{Status: 429, RetryAfter: []int{1}}, "429 Retry-After: 1", 30 * second, short},
	} {
		x.f.From, x.f.To = 20*second, 20*second+x.length
		add(fmt.Sprintf("all requests %s for %v of 90 s, deadline %v", x.name, x.length, x.deadline), failing(x.f), lasting(90, 100, x.deadline))
	}
	add("all requests 503 in the first 5 s", failing(simulation.Fault{Status: 503, To: 5 * second}), at(100, long))
	stop := func(from, length time.Duration) simulation.Fault {
		return simulation.Fault{Status: 503, StateEnd: true, From: from, To: from + length}
	}
	add("stops of 2, 5 and 3 s, right Retry-After", failing(stop(10*second, 2*second), stop(20*second, 5*second), stop(40*second, 3*second)), at(100, long))
	for _, share := range []float64{.1, 1. / 3} {
		f := simulation.Fault{Of: simulation.Backends, Share: share, Status: 503, From: 10 * second, To: 40 * second}
		add(fmt.Sprintf("%.0f %% of 30 backends bare 503 for 30 s of 120", 100*share), simulation.Site{Backends: 30, Faults: []simulation.Fault{f}}, lasting(120, 100, long))
	}
}

// permissions are 403s that are the right responses.
func permissions(add adder) {
	forbidden := func(f simulation.Fault, l simulation.Load) (simulation.Site, simulation.Load) {
		f.Status, l.Right = 403, []int{403}
		return failing(f), l
	}
	resources := func(l simulation.Load) simulation.Load {
		l.Resources = 1000
		return l
	}
	part := func(share float64) simulation.Fault { return simulation.Fault{Of: simulation.Resources, Share: share} }
	row := func(name string, f simulation.Fault, l simulation.Load) {
		site, load := forbidden(f, resources(l))
		add(name, site, load)
	}
	row("5 % of resources forbidden, 20 workers, 1000 calls", part(.05), simulation.Load{Calls: 1000, Workers: 20})
	row("30 % of resources forbidden, 20 workers, 1000 calls", part(.3), simulation.Load{Calls: 1000, Workers: 20})
	for _, percent := range []float64{5, 30, 60} {
		row(fmt.Sprintf("%v %% of resources forbidden", percent), part(percent/100), at(100, long))
	}
	row("forbidden after 20 calls, for 40, 5 workers, 200 calls", simulation.Fault{After: 20, Requests: 40}, simulation.Load{Calls: 200, Workers: 5})
	row("revoked after 1000 calls, deadline 300ms", simulation.Fault{After: 1000}, at(100, short))
	row("revoked after 20 calls, deadline 300ms", simulation.Fault{After: 20}, at(100, short))
	for _, percent := range []float64{1, 5} {
		f := part(percent / 100)
		f.Body = `{"code":"QuotaExceeded","message":"The storage quota of the user has been exceeded."}`
		row(fmt.Sprintf("%v %% of resources 403 QuotaExceeded (storage)", percent), f, at(100, long))
	}
}

// fields returns a header of alternating names and values.
func fields(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

// says returns a Statement that is the same in all responses.
func says(pairs ...string) func() func(simulation.Request) http.Header {
	h := fields(pairs...)
	return func() func(simulation.Request) http.Header { return func(simulation.Request) http.Header { return h } }
}

// statements are those that the server does not enforce.
func statements(add adder) {
	stated := func(name string, s func() func(simulation.Request) http.Header) {
		add("not enforced: "+name, simulation.Site{Statement: s}, at(100, long))
	}
	for _, x := range [][]string{
		{"X-Ratelimit-Remaining", "0"},
		{"X-Ratelimit-Limit", "100", "X-Ratelimit-Used", "100"},
		{"X-Quota-Remaining", "0"},
		{"X-Concurrency-Limit-Remaining", "0"},
		{"X-Usage-Remaining", "0"},
		{"X-Ratelimit-Remaining", "99990", "X-Ratelimit-Onetime-Remaining", "0"},
		{"X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "60"},
		{"Ratelimit", `"default";r=0;t=60`},
		{"X-Ratelimit-Limit-Minute", "100", "X-Ratelimit-Remaining-Minute", "99", "X-Ratelimit-Limit-Day", "1000", "X-Ratelimit-Remaining-Day", "0"},
		{"X-Ratelimit-Limit", "100", "X-Ratelimit-Remaining", "5", "X-Ratelimit-Reset", "3600"},
		{"X-Ratelimit-Limit", "100", "X-Ratelimit-Remaining", "1", "X-Ratelimit-Reset", "60"},
		{"X-Ratelimit-Limit", "1000", "X-Ratelimit-Remaining", "1", "X-Ratelimit-Reset", "36000"},
		{"X-Ratelimit-Limit", "13", "X-Ratelimit-Remaining", "13", "X-Ratelimit-Reset", "60"},
		{"X-Ratelimit-Limit", "100", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "3000", "X-Cache", "HIT"},
		{"X-Ratelimit-Limit", "100", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "3000", "Cf-Cache-Status", "HIT"},
		{"X-Ratelimit-Limit", "100", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "3000", "Cache-Status", "edge; hit", "Age", "0"},
		{"Ratelimit", `"default";r=1;t=1`, "Ratelimit-Policy", `"default";q=2;w=1`},
	} {
		name := ""
		for i := 0; i < len(x); i += 2 {
			name += fmt.Sprintf("%s: %s, ", x[i], x[i+1])
		}
		stated(strings.ReplaceAll(name[:len(name)-2], "X-Ratelimit-", ""), says(x...))
	}
	stated("random Remaining of other clients", func() func(simulation.Request) http.Header {
		return func(r simulation.Request) http.Header {
			return fields("X-Ratelimit-Limit", "100", "X-Ratelimit-Remaining", strconv.Itoa(r.Random.IntN(101)), "X-Ratelimit-Reset", "3600")
		}
	})
	stated("1 % of responses are another client's, with 0 left", func() func(simulation.Request) http.Header {
		return func(r simulation.Request) http.Header {
			left := "100000"
			if r.Random.IntN(100) == 0 {
				left = "0"
			}
			return fields("X-Ratelimit-Limit", "100000", "X-Ratelimit-Remaining", left, "X-Ratelimit-Reset", "3600")
		}
	})
	stated("0 left for 3000 s, in the first 2 s only", func() func(simulation.Request) http.Header {
		start := time.Now()
		return func(r simulation.Request) http.Header {
			if r.At.Sub(start) > 2*second {
				return nil
			}
			return fields("X-Ratelimit-Limit", "100", "X-Ratelimit-Remaining", "0", "X-Ratelimit-Reset", "3000")
		}
	})
}

// counts returns a Statement of a quota that counts all requests.
func counts(limit, left int, reset time.Duration) func() func(simulation.Request) http.Header {
	return func() func(simulation.Request) http.Header {
		left, end := left, time.Now().Add(reset)
		return func(r simulation.Request) http.Header {
			left = max(left-1, 0)
			seconds := math.Ceil(end.Sub(r.At).Seconds())
			return fields("X-Ratelimit-Limit", strconv.Itoa(limit), "X-Ratelimit-Remaining", strconv.Itoa(left), "X-Ratelimit-Reset", fmt.Sprint(seconds))
		}
	}
}

// usedUp are quotas with less left than usual, and more than is needed.
func usedUp(add adder) {
	for _, x := range []struct {
		limit, left, calls int
		reset              time.Duration
		deadline           time.Duration
	}{
		{1000, 90, 30, 45 * time.Minute, long}, {1000, 90, 30, 12 * time.Hour, long}, {1000, 90, 30, 12 * time.Hour, 0},
		{100, 9, 5, 45 * time.Minute, long}, {5000, 490, 60, 50 * time.Minute, 0}, {5000, 490, 200, 50 * time.Minute, 0},
	} {
		site := simulation.Site{Latency: simulation.Latency{Mean: 50 * ms}, Statement: counts(x.limit, x.left, x.reset)}
		name := fmt.Sprintf("%d of %d left for %v, %d calls, deadline %v, ", x.left, x.limit, x.reset, x.calls, x.deadline)
		add(name+"one after another", site, simulation.Load{Calls: x.calls, Workers: 1, Deadline: x.deadline})
		add(name+"together", site, simulation.Load{Calls: x.calls, Deadline: x.deadline})
	}
}
