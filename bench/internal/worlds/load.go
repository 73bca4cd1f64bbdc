package worlds

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A LoadKind states when calls are made.
type LoadKind string

// The kinds of load.
const (
	Open   LoadKind = "open"   // at times that do not depend on the responses
	Closed LoadKind = "closed" // from workers that make one call after another
	Bursts LoadKind = "bursts" // many at the same moment, at intervals
	Cron   LoadKind = "cron"   // jobs that begin at full minutes, each made by workers
	Cold   LoadKind = "cold"   // many at the start, then at random times
)

// A Carrier is where requests name their tenant.
type Carrier string

// The carriers of tenants. Clients can know the accounts of the first three.
const (
	Authorization Carrier = "Authorization"
	APIKeyHeader  Carrier = "X-API-Key"
	APIKeyQuery   Carrier = "api_key in the query"
	TenantQuery   Carrier = "tenant in the query"
	Cookie        Carrier = "cookie"
	Path          Carrier = "path"
)

// A Load is the calls of a world.
type Load struct {
	Kind     LoadKind
	Calls    int
	Duration time.Duration // that the calls take if none is delayed
	Callers  int           // the number of workers; zero means a caller for each call
	Burst    int           // calls at the same moment
	Interval time.Duration // between bursts or jobs
	Regular  bool          // calls of an open load have the same distance

	Routes    int
	Resources int // per route; zero means that paths have no identifier
	Tenants   int
	Uneven    bool    // half of the calls are for an eighth of the routes, resources and tenants
	Carrier   Carrier // empty means that requests name no tenant
	Posts     float64 // the share of the calls whose method is POST

	Deadline      time.Duration // of each call; zero means none
	ClientTimeout bool          // the deadline is http.Client.Timeout instead of a context's

	Thinking time.Duration // mean time between two calls of a worker
	Pause    time.Duration // time after a failed call of a worker

	// Steady is set if a worker makes its next call no earlier than at the deadline of a failed
	// one, so that it makes no more calls if they fail early.
	Steady bool
}

// Rate returns the calls per second if none is delayed.
func (l Load) Rate() float64 { return float64(l.Calls) / l.Duration.Seconds() }

// String describes l.
func (l Load) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d calls in %s", l.Kind, l.Calls, short(l.Duration))
	if l.Callers > 0 {
		fmt.Fprintf(&b, " from %d", l.Callers)
	}
	if l.Steady {
		b.WriteString(" at a steady pace")
	}
	if l.Burst > 0 {
		fmt.Fprintf(&b, ", %d at a time", l.Burst)
	}
	if l.Interval > 0 {
		fmt.Fprintf(&b, " every %s", short(l.Interval))
	}
	fmt.Fprintf(&b, ", %d routes", l.Routes)
	if l.Resources > 0 {
		fmt.Fprintf(&b, " of %d resources", l.Resources)
	}
	if l.Carrier != "" {
		fmt.Fprintf(&b, ", %d tenants (%s)", l.Tenants, l.Carrier)
	}
	if l.Uneven {
		b.WriteString(" unevenly")
	}
	if l.Posts > 0 {
		fmt.Fprintf(&b, ", %s POST", percent(l.Posts))
	}
	switch {
	case l.Deadline == 0:
		b.WriteString(", no deadline")
	case l.ClientTimeout:
		fmt.Fprintf(&b, ", Timeout %s", short(l.Deadline))
	default:
		fmt.Fprintf(&b, ", deadline %s", short(l.Deadline))
	}
	return b.String()
}

// word returns word i, without digits, so that paths are not taken for identifiers.
func word(i int) string {
	letters := []byte("list")
	for ; i > 0; i /= 26 {
		letters = append(letters, byte('a'+i%26))
	}
	return string(letters)
}

// tenantName returns the name of a tenant.
func tenantName(i int) string { return "tenant-" + word(i+1) }

const host = "https://api.example.test"

// request returns the request of call i, without a context.
func (w *World) request(i int) *http.Request {
	c, l := w.calls[i], w.Load
	var url strings.Builder
	url.WriteString(host)
	if l.Carrier == Path {
		url.WriteString("/" + tenantName(int(c.tenant)))
	}
	url.WriteString("/" + word(int(c.route)))
	if l.Resources > 0 {
		url.WriteString("/" + strconv.Itoa(100_000+int(c.resource)))
	}
	switch l.Carrier {
	case APIKeyQuery:
		url.WriteString("?api_key=key-" + tenantName(int(c.tenant)))
	case TenantQuery:
		url.WriteString("?tenant=" + tenantName(int(c.tenant)))
	}
	method, body := http.MethodGet, (*strings.Reader)(nil)
	if c.post {
		method, body = http.MethodPost, strings.NewReader(`{"name":"value"}`)
	}
	req := newRequest(method, url.String(), body)
	switch l.Carrier {
	case Authorization:
		req.Header.Set("Authorization", "Bearer "+tenantName(int(c.tenant)))
	case APIKeyHeader:
		req.Header.Set("X-API-Key", tenantName(int(c.tenant)))
	case Cookie:
		req.Header.Set("Cookie", "session="+tenantName(int(c.tenant)))
	}
	return req
}

// newRequest returns a request whose URL is valid.
func newRequest(method, url string, body *strings.Reader) *http.Request {
	var req *http.Request
	var err error
	if body == nil {
		req, err = http.NewRequest(method, url, nil)
	} else {
		req, err = http.NewRequest(method, url, body)
		req.Header.Set("Content-Type", "application/json")
	}
	if err != nil {
		panic(err)
	}
	return req
}
