package debugpage

import (
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// A Page is an http.Handler that shows the state of Transports. The zero Page is ready to use
// and shows no Transport until Add is called. It is safe for concurrent use. Its fields must
// not be changed after the first request, and it must not be copied.
//
// A Page keeps 5 minutes of counters and the latest 100 decisions, in at most 256 KiB.
type Page struct {
	// Title is the heading of the page. Empty means "heed".
	Title string

	// MaxAccounts is the maximum number of accounts whose quotas are shown for each Tracker:
	// those with a hold first, then those with the smallest part of a limit left. Zero or
	// less means 100.
	MaxAccounts int

	// Clock is the source of time for the charts and the list of decisions. It should be that
	// of the Transports. Nil means the system clock.
	Clock throttle.Clock

	// Forget is called with a host of the list of quotas when a visitor asks the page to forget
	// what is known of it, for a hold that is a mistake. It should call quota.Tracker.Forget with a
	// request of each account at the host. All who reach the page can ask; requests of other sites
	// are rejected. Nil means that the page is read-only.
	Forget func(host string)

	// Batches is the Monitor whose jobs and Outboxes are shown, at most 100 of them. Its times are
	// those of the system clock. Nil means that the page has no such section.
	Batches *batch.Monitor

	recorder recorder

	mu         sync.Mutex
	transports []transport
}

// A transport is a Transport that is shown.
type transport struct {
	name  string
	parts heed.Parts
}

// Add shows t under a name. Transports that share a Tracker, a Queue or a Budget are shown
// together. The page keeps what t uses from being garbage-collected. The name need not be
// unique, and may be empty if there is only one Transport.
func (p *Page) Add(name string, t *heed.Transport) {
	parts := t.Parts()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.transports = append(p.transports, transport{clean(name), parts})
}

// Trace returns a Trace whose events fill the charts and the list of decisions. It belongs
// into Transport.Trace of all Transports that are shown; heed.JoinTraces joins it with others.
// Without it these parts of the page stay empty.
func (p *Page) Trace() *heed.Trace {
	return &heed.Trace{
		WaitDone:     func(req *http.Request, i heed.WaitInfo) { p.recorder.waitDone(p.now(), req, i) },
		AttemptStart: func(*http.Request, heed.AttemptInfo) { p.recorder.attemptStart(p.now()) },
		AttemptDone:  func(_ *http.Request, i heed.AttemptInfo) { p.recorder.attemptDone(p.now(), i) },
		Retry:        func(req *http.Request, i heed.RetryInfo) { p.recorder.retry(p.now(), req, i) },
		Done:         func(req *http.Request, i heed.DoneInfo) { p.recorder.done(p.now(), req, i) },
		Hold:         func(i quota.HoldInfo) { p.recorder.hold(p.now(), i) },
		LimitLearned: func(i quota.LimitLearnedInfo) { p.recorder.limitLearned(p.now(), i) },
	}
}

func (p *Page) now() time.Time { return throttle.ClockOr(p.Clock).Now() }

// ServeHTTP implements http.Handler. It responds to GET and HEAD with the page, or with JSON
// if the Accept header prefers that. The query parameter host selects hosts that contain it, and
// kind the decisions of one kind. If Forget is set, it responds to POST with the form field forget
// by calling Forget. The status is 405 for other methods.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		p.serveState(w, r)
	case r.Method == http.MethodPost && p.Forget != nil:
		p.serveForget(w, r)
	case p.Forget != nil:
		h.Set("Allow", "GET, HEAD, POST")
		http.Error(w, "the page has no such method", http.StatusMethodNotAllowed)
	default:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the page is read-only", http.StatusMethodNotAllowed)
	}
}

func (p *Page) serveState(w http.ResponseWriter, r *http.Request) {
	s := p.state(filterOf(r.URL.Query()))
	h := w.Header()
	h.Set("Vary", "Accept")
	var body []byte
	var err error
	if prefersJSON(r.Header.Values("Accept")) {
		h.Set("Content-Type", "application/json")
		body, err = json.Marshal(s)
	} else {
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", contentSecurityPolicy)
		h.Set("Referrer-Policy", p.referrerPolicy())
		h.Set("X-Frame-Options", "DENY")
		body, err = s.html()
	}
	if err != nil {
		http.Error(w, "debugpage: "+err.Error(), http.StatusInternalServerError)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body)
	}
}

// referrerPolicy returns a policy with which a form states its origin to the page, if the page
// has one that needs it.
func (p *Page) referrerPolicy() string {
	if p.Forget != nil {
		return "same-origin"
	}
	return "no-referrer"
}

// serveForget calls Forget with the host that r states, and shows the page again.
func (p *Page) serveForget(w http.ResponseWriter, r *http.Request) {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		http.Error(w, "the request is that of another site", http.StatusForbidden)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	host := r.PostFormValue("forget")
	if !p.knows(host) {
		http.Error(w, "the host is not known", http.StatusNotFound)
		return
	}
	p.Forget(host)
	w.Header().Set("Location", "?"+r.URL.RawQuery)
	w.WriteHeader(http.StatusSeeOther)
}

// knows reports whether a Tracker keeps an account at host.
func (p *Page) knows(host string) bool {
	p.mu.Lock()
	transports := slices.Clone(p.transports)
	p.mu.Unlock()
	for _, t := range transports {
		for _, a := range t.parts.Quota.Snapshot(math.MaxInt).Shown {
			if a.Host == host {
				return true
			}
		}
	}
	return false
}

// prefersJSON reports whether an Accept header prefers application/json to text/html. The
// page is the default.
func prefersJSON(accept []string) bool {
	var json, html float64
	for item := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		parts := strings.Split(item, ";")
		q := quality(parts[1:])
		switch strings.ToLower(strings.TrimSpace(parts[0])) {
		case "application/json":
			json = max(json, q)
		case "text/html", "application/xhtml+xml":
			html = max(html, q)
		}
	}
	return json > html
}

// quality returns the weight in the parameters of a media range: RFC 9110, section 12.4.2.
func quality(params []string) float64 {
	i := slices.IndexFunc(params, func(p string) bool { return strings.HasPrefix(strings.ToLower(strings.TrimSpace(p)), "q=") })
	if i < 0 {
		return 1
	}
	q, err := strconv.ParseFloat(strings.TrimSpace(params[i])[2:], 64)
	if err != nil || !(q >= 0 && q <= 1) {
		return 0
	}
	return q
}
