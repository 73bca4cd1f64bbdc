package debugpage

import (
	"cmp"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/explain"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle/queue"
)

const stateVersion = 1

// A state is what the page shows at one moment. Its JSON is documented in
// docs/debug-page.md. Times are in seconds.
type state struct {
	Version   int           `json:"version"` // of the names and their meanings; new names do not change it
	Title     string        `json:"title"`
	At        time.Time     `json:"at"`
	Summary   summary       `json:"summary"`
	Charts    []chart       `json:"charts"`
	Quotas    []quotaTable  `json:"quotas"`
	Queues    []queueTable  `json:"queues"`
	Budgets   []budgetState `json:"budgets"`
	Batches   *batchTable   `json:"batches"` // nil: the page has no Monitor
	Decisions []decision    `json:"decisions"`

	NoEvents bool `json:"no_events"` // no Trace has reported an event yet

	filter    filter
	canForget bool
}

// A filter selects what the page shows.
type filter struct {
	host string // a part of the host, in lower case; empty: all
	kind kind   // of decisions; empty: all
}

// filterOf returns the filter in the query of a request.
func filterOf(query url.Values) filter {
	return filter{host: strings.ToLower(clean(query.Get("host"))), kind: kind(clean(query.Get("kind")))}
}

// hasHost reports whether a host, or the name of a limit with a host, passes f.
func (f filter) hasHost(name string) bool {
	return f.host == "" || strings.Contains(strings.ToLower(name), f.host)
}

// decisions returns those of all that pass f.
func (f filter) decisions(all []decision) []decision {
	return slices.DeleteFunc(all, func(d decision) bool {
		return f.kind != "" && d.Kind != f.kind || !f.hasHost(d.Host)
	})
}

// A summary has the numbers at the top of the page.
type summary struct {
	Waiting          int     `json:"waiting"`
	LongestWait      float64 `json:"longest_wait_s"`
	InFlight         int     `json:"in_flight"`
	Holds            int     `json:"holds"`
	SentLastMinute   int     `json:"sent_last_minute"`
	ThrottledLastMin int     `json:"throttled_last_minute"`
	WaitedLastMinute int     `json:"waited_last_minute"`
	RetriesLeft      *int64  `json:"retries_left"` // nil: not limited, or no Transport
	longestWait      time.Duration
}

// A quotaTable shows the quotas of one Tracker.
type quotaTable struct {
	Transports string     `json:"transports"`
	Mode       string     `json:"mode"`
	Accounts   int        `json:"accounts"`
	Holds      int        `json:"holds"` // of all accounts
	Shown      int        `json:"shown"` // accounts in Rows
	Rows       []quotaRow `json:"rows"`
}

// A quotaRow shows one quota of an account, or an account without quotas.
type quotaRow struct {
	Host        string     `json:"host"`
	Account     string     `json:"account,omitempty"`
	Name        string     `json:"name,omitempty"`
	Hold        *hold      `json:"hold"`
	InFlight    int        `json:"in_flight"`
	Concurrency int        `json:"concurrency,omitempty"` // zero: no maximum
	Reason      string     `json:"concurrency_reason,omitempty"`
	Rate        float64    `json:"learned_rate,omitempty"` // per second; zero: none
	Limits      []limitRow `json:"limits"`
	LastUsed    *float64   `json:"last_used_s"` // time since; nil: not known
}

// A hold shows why a quota is held, and until when.
type hold struct {
	Reason string    `json:"reason"`
	Known  string    `json:"known"` // "stated" or "learned"
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	EndsIn float64   `json:"ends_in_s"` // negative: a probe is due or in flight
	Probe  bool      `json:"probe"`
	endsIn time.Duration
}

// A limitRow shows one limit of a quota.
type limitRow struct {
	Name      string   `json:"name,omitempty"`
	Unit      string   `json:"unit"`
	Size      int64    `json:"size,omitempty"` // zero: not known
	Remaining *int64   `json:"remaining"`      // nil: not known
	Per       float64  `json:"per_s,omitempty"`
	ResetIn   *float64 `json:"reset_in_s"` // nil: not known
	Known     string   `json:"known"`      // "stated", "learned" or "declared"
	per       time.Duration
	resetIn   time.Duration
}

// A queueTable shows one Queue.
type queueTable struct {
	Transports  string     `json:"transports"`
	Waiting     int        `json:"waiting"`
	LongestWait float64    `json:"longest_wait_s"`
	Granted     uint64     `json:"granted_after_waiting"`
	Rejected    uint64     `json:"rejected"`
	Failed      uint64     `json:"failed"`
	Closed      bool       `json:"closed"`
	Limits      []queueRow `json:"limits"`
	Omitted     int        `json:"omitted_limits"`
	longestWait time.Duration
}

// A queueRow shows the limits of one name that callers wait for. A limit with many keys is
// one row, because keys may be secret.
type queueRow struct {
	Name        string   `json:"name"`
	Known       string   `json:"known"` // "own", "stated" or "learned"
	Keys        int      `json:"keys"`
	Waiting     int      `json:"waiting"`
	Blocked     int      `json:"blocked"`
	Tenants     int      `json:"tenants"`
	LongestWait float64  `json:"longest_wait_s"`
	NextIn      *float64 `json:"next_grant_in_s"` // nil: not known
	longestWait time.Duration
	nextIn      time.Duration
}

// A budgetState shows a retry budget.
type budgetState struct {
	Transports string `json:"transports"`
	Requests   int64  `json:"requests"`
	Retries    int64  `json:"retries"`
	Allowed    *int64 `json:"allowed"` // nil: not limited
	Retried    int64  `json:"retried_since_start"`
	Rejected   int64  `json:"rejected_since_start"`
}

const (
	stated   = "stated"
	learned  = "learned"
	declared = "declared"
	own      = "own"

	// maxQueueRows is the maximum number of rows for one Queue.
	maxQueueRows = 100
)

// state returns what the page shows now, as far as it passes f.
func (p *Page) state(f filter) state {
	p.mu.Lock()
	transports := slices.Clone(p.transports)
	p.mu.Unlock()
	now := p.now()
	r := p.recorder.copy(now)
	s := state{
		Version: stateVersion,
		Title:   clean(cmp.Or(p.Title, "heed")), At: now, Charts: charts(r.bins), NoEvents: r.empty,
		Quotas: []quotaTable{}, Queues: []queueTable{}, Budgets: []budgetState{}, Batches: newBatchTable(p.Batches, time.Now()), Decisions: f.decisions(r.decisions), filter: f, canForget: p.Forget != nil,
	}
	for _, g := range groupBy(transports, func(t transport) *quota.Tracker { return t.parts.Quota }) {
		s.Quotas = append(s.Quotas, newQuotaTable(g.names, g.part, f, p.MaxAccounts))
	}
	for _, g := range groupBy(transports, func(t transport) *queue.Queue { return t.parts.Queue }) {
		s.Queues = append(s.Queues, newQueueTable(g.names, g.part.Snapshot(), f))
	}
	for _, g := range groupBy(transports, func(t transport) *backoff.Budget { return t.parts.Budget }) {
		s.Budgets = append(s.Budgets, newBudgetState(g.names, g.part, now))
	}
	s.summarize(r)
	return s
}

// A group is a part with the names of the Transports that share it.
type group[P any] struct {
	part  P
	names string
}

// groupBy groups transports by one of their parts, in their order.
func groupBy[P comparable](transports []transport, part func(transport) P) (groups []group[P]) {
	for _, t := range transports {
		i := slices.IndexFunc(groups, func(g group[P]) bool { return g.part == part(t) })
		switch {
		case i < 0:
			groups = append(groups, group[P]{part(t), t.name})
		case len(groups[i].names) < maxText:
			groups[i].names += ", " + t.name
		}
	}
	return groups
}

func (s *state) summarize(r recording) {
	m := &s.Summary
	m.InFlight = r.inFlight
	for _, q := range s.Queues {
		m.Waiting += q.Waiting
		m.longestWait = max(m.longestWait, q.longestWait)
	}
	m.LongestWait = seconds(m.longestWait)
	for _, t := range s.Quotas {
		m.Holds += t.Holds
	}
	for _, b := range r.bins[max(len(r.bins)-int(time.Minute/binWidth), 0):] {
		m.SentLastMinute += b.sent
		m.ThrottledLastMin += b.throttled
		m.WaitedLastMinute += b.waits
	}
	for _, b := range s.Budgets {
		if b.Allowed == nil {
			continue
		}
		left := max(*b.Allowed-b.Retries, 0)
		if m.RetriesLeft == nil || left < *m.RetriesLeft {
			m.RetriesLeft = &left
		}
	}
}

func newQuotaTable(names string, t *quota.Tracker, f filter, maxAccounts int) quotaTable {
	if maxAccounts <= 0 {
		maxAccounts = 100
	}
	snapshot := t.Snapshot(math.MaxInt) // holds of all accounts are counted
	table := quotaTable{Transports: names, Mode: modeName(t.Mode), Accounts: snapshot.Accounts, Rows: []quotaRow{}}
	for _, a := range snapshot.Shown {
		table.Holds += holds(a)
		if table.Shown == maxAccounts || !f.hasHost(a.Host) {
			continue
		}
		table.Shown++
		for _, q := range a.Quotas {
			table.Rows = append(table.Rows, newQuotaRow(a, q, snapshot.At))
		}
		if len(a.Quotas) == 0 {
			table.Rows = append(table.Rows, newQuotaRow(a, quota.QuotaSnapshot{}, snapshot.At))
		}
	}
	return table
}

// holds returns the number of quotas of a that are held.
func holds(a quota.AccountSnapshot) (n int) {
	for i := range a.Quotas {
		if a.Quotas[i].Hold != nil {
			n++
		}
	}
	return n
}

func modeName(m quota.Mode) string {
	switch m {
	case quota.Full:
		return "stated limits and estimates"
	case quota.Disabled:
		return "disabled"
	}
	return "stated limits only"
}

func newQuotaRow(a quota.AccountSnapshot, q quota.QuotaSnapshot, now time.Time) quotaRow {
	row := quotaRow{
		Host: clean(a.Host), Account: a.Account, InFlight: q.InFlight,
		Concurrency: q.Concurrency, Reason: q.ConcurrencyReason, Rate: q.Rate, Limits: []limitRow{},
	}
	if q.Name != a.Host {
		row.Name = clean(strings.TrimPrefix(q.Name, a.Host))
	}
	if !a.LastUsed.IsZero() {
		since := seconds(max(now.Sub(a.LastUsed), 0))
		row.LastUsed = &since
	}
	if h := q.Hold; h != nil {
		endsIn := h.Until.Sub(now)
		row.Hold = &hold{Reason: h.Reason, Known: known(h.Estimated), Since: h.Since, Until: h.Until, EndsIn: seconds(endsIn), Probe: h.Probe, endsIn: endsIn}
	}
	for _, l := range q.Limits {
		limit := limitRow{Name: clean(l.Name), Unit: clean(l.Unit), Size: l.Size, Per: seconds(l.Per), Known: known(l.Learned), per: l.Per}
		if l.Declared {
			limit.Known = declared
		}
		if l.RemainingKnown {
			limit.Remaining = &l.Remaining
		}
		if !l.Reset.IsZero() {
			limit.resetIn = max(l.Reset.Sub(now), 0)
			in := seconds(limit.resetIn)
			limit.ResetIn = &in
		}
		row.Limits = append(row.Limits, limit)
	}
	return row
}

func known(estimated bool) string {
	if estimated {
		return learned
	}
	return stated
}

func newQueueTable(names string, q queue.Snapshot, f filter) queueTable {
	t := queueTable{
		Transports: names, Waiting: q.Waiting, Granted: q.Granted, Rejected: q.Rejected, Failed: q.Failed,
		Closed: q.Closed, Omitted: q.OmittedLimits, Limits: []queueRow{},
	}
	if len(q.Classes) > 0 {
		t.longestWait = q.Classes[0].HeadWaited
	}
	t.LongestWait = seconds(t.longestWait)
	rows := map[string]int{}
	for _, l := range q.Limits {
		if l.Name == "" && l.Blocked == 0 { // not asked yet: its callers wait for other limits
			continue
		}
		if !f.hasHost(l.Name) {
			continue
		}
		i, seen := rows[l.Name]
		if !seen {
			if len(t.Limits) == maxQueueRows {
				t.Omitted++
				continue
			}
			i = len(t.Limits)
			rows[l.Name] = i
			t.Limits = append(t.Limits, queueRow{Name: clean(l.Name), Known: knownLimit(l)})
		}
		t.Limits[i].add(l)
	}
	return t
}

// knownLimit returns how a limit is known. The server states neither slow start nor overload, but they are no limits of the
// program either.
func knownLimit(l queue.LimitSnapshot) string {
	_, reason := explain.SplitLimit(l.Name)
	switch {
	case l.ServerImposed && reason != "slow start":
		return known(l.Estimated)
	case reason != "":
		return learned
	}
	return own
}

// add adds a limit of the same name.
func (r *queueRow) add(l queue.LimitSnapshot) {
	r.Keys++
	r.Waiting += l.Waiting
	r.Blocked += l.Blocked
	r.Tenants += l.Tenants
	r.longestWait = max(r.longestWait, l.LongestWait)
	r.LongestWait = seconds(r.longestWait)
	if l.GrantAfter > 0 && (r.NextIn == nil || l.GrantAfter < r.nextIn) {
		r.nextIn = l.GrantAfter
		in := seconds(l.GrantAfter)
		r.NextIn = &in
	}
}

func newBudgetState(names string, b *backoff.Budget, now time.Time) budgetState {
	s := b.Snapshot(now)
	state := budgetState{Transports: names, Requests: s.Requests, Retries: s.Retries, Retried: s.Retried, Rejected: s.Rejected}
	if n := b.Allowance(now); n < math.MaxInt64 {
		state.Allowed = &n
	}
	return state
}
