package debugpage

import (
	"hash/maphash"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

const (
	binWidth = 2 * time.Second
	numBins  = 150 // in all charts: 5 minutes

	maxDecisions = 100

	// minWait is the shortest wait that is listed as a decision.
	minWait = 100 * time.Millisecond

	// joinWithin is the time within which similar decisions become one entry of the list.
	joinWithin = 10 * time.Second
)

// A recorder counts the events of a Trace and keeps the latest decisions.
type recorder struct {
	mu        sync.Mutex
	bins      [numBins + 1]bin // a ring: one more than are shown, for the time that has not ended
	decisions []*decision      // oldest first, at most maxDecisions
	inFlight  int
	recorded  bool // there was an event

	lastEvent   uint64 // hash of the latest HoldInfo or LimitLearnedInfo
	lastEventAt time.Time
}

// A bin counts the events of a part of the time.
type bin struct {
	index       int64 // number of parts since 1970
	sent        int
	throttled   int
	waits       int // requests that left the queue after waiting
	longestWait time.Duration
}

// at returns the bin of now, or nil if now is longer ago than the bins reach. The caller
// holds the lock.
func (r *recorder) at(now time.Time) *bin {
	r.recorded = true
	i := binIndex(now)
	b := &r.bins[i%int64(len(r.bins))]
	switch {
	case b.index > i:
		return nil
	case b.index < i:
		*b = bin{index: i}
	}
	return b
}

// binIndex returns the number of the bin of now. Times before 1970 are in the first one.
func binIndex(now time.Time) int64 { return max(now.UnixNano()/int64(binWidth), 0) }

func (r *recorder) attemptStart(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight++
	if b := r.at(now); b != nil {
		b.sent++
	}
}

func (r *recorder) attemptDone(now time.Time, i heed.AttemptInfo) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight = max(r.inFlight-1, 0)
	if b := r.at(now); b != nil && i.Outcome == throttle.Throttled {
		b.throttled++
	}
}

func (r *recorder) waitDone(now time.Time, req *http.Request, i heed.WaitInfo) {
	if i.Waited <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if b := r.at(now); b != nil {
		b.waits++
		b.longestWait = max(b.longestWait, i.Waited)
	}
	if i.Waited >= minWait {
		r.add(requestDecision(now, kindWait, req, i.Limit, i.Waited), i.String)
	}
}

func (r *recorder) retry(now time.Time, req *http.Request, i heed.RetryInfo) {
	text := i.String() // runs Error methods: not under the lock
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(requestDecision(now, kindRetry, req, strconv.Itoa(i.Status), i.Delay), func() string { return text })
}

func (r *recorder) done(now time.Time, req *http.Request, i heed.DoneInfo) {
	if i.StopReason == nil {
		return
	}
	text := i.String()
	similar := "not sent"
	if i.Attempts > 0 {
		similar = strconv.Itoa(i.Status)
	}
	similar += withoutNumbers(heed.DoneInfo{Info: heed.Info{StopReason: i.StopReason}}.String())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(requestDecision(now, kindGiveUp, req, similar, 0), func() string { return text })
}

func (r *recorder) hold(now time.Time, i quota.HoldInfo) {
	d := decision{At: now, Kind: kindHold, Host: clean(i.Host), similar: clip(i.Limit), longest: i.For}
	if !i.Held {
		d.Kind = kindRelease
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isNew(now, i) {
		r.add(d, i.String)
	}
}

func (r *recorder) limitLearned(now time.Time, i quota.LimitLearnedInfo) {
	d := decision{At: now, Kind: kindLimit, Host: clean(i.Host), similar: clip(i.Change.String() + " " + i.Limit + " " + i.Name)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isNew(now, i) {
		r.add(d, i.String)
	}
}

// isNew reports whether event is not the latest one once more: of the Transports that share a
// Tracker, each reports it. The caller holds the lock.
func (r *recorder) isNew(now time.Time, event any) bool {
	const same = 100 * time.Millisecond
	id := maphash.Comparable(seed, event)
	if r.lastEvent == id && now.Sub(r.lastEventAt) < same {
		return false
	}
	r.lastEvent, r.lastEventAt = id, now
	return true
}

var seed = maphash.MakeSeed()

// A kind is the kind of a decision.
type kind string

const (
	kindWait    kind = "wait"
	kindRetry   kind = "retry"
	kindGiveUp  kind = "give up"
	kindHold    kind = "hold"
	kindRelease kind = "release"
	kindLimit   kind = "limit"
)

var kinds = []kind{kindWait, kindRetry, kindGiveUp, kindHold, kindRelease, kindLimit}

// A decision is an entry of the list of decisions. Similar decisions within a short time are
// one entry.
type decision struct {
	At     time.Time `json:"at"` // of the latest
	Kind   kind      `json:"kind"`
	Method string    `json:"method,omitempty"`
	Host   string    `json:"host"`
	Text   string    `json:"text"`
	Count  int       `json:"count"` // of similar decisions

	similar string        // equal in similar decisions of one kind, method and host
	longest time.Duration // the time that Text states: the longest of similar decisions
}

// requestDecision returns a decision about req.
func requestDecision(now time.Time, kind kind, req *http.Request, similar string, d time.Duration) decision {
	method, host := describe(req)
	return decision{At: now, Kind: kind, Method: method, Host: host, similar: clip(similar), longest: d}
}

// add adds d, or counts it in the entry of similar decisions. The text of that with the
// longest time is shown. The caller holds the lock.
func (r *recorder) add(d decision, text func() string) {
	d.Count = 1
	for i := len(r.decisions) - 1; i >= 0; i-- {
		e := r.decisions[i]
		if e.Kind != d.Kind || e.Host != d.Host || e.Method != d.Method || e.similar != d.similar || d.At.Sub(e.At) > joinWithin {
			continue
		}
		e.At, e.Count = d.At, e.Count+1
		if d.longest > e.longest {
			e.longest, e.Text = d.longest, clean(text())
		}
		copy(r.decisions[i:], r.decisions[i+1:]) // the latest is last
		r.decisions[len(r.decisions)-1] = e
		return
	}
	d.Text = clean(text())
	r.append(d)
}

func (r *recorder) append(d decision) {
	if len(r.decisions) == maxDecisions {
		i := r.oldestOfMost()
		r.decisions = slices.Delete(r.decisions, i, i+1)
	}
	r.decisions = append(r.decisions, &d)
}

// oldestOfMost returns the index of the oldest decision of the kind of which there are most, so that
// a flood of one kind does not remove the others. The caller holds the lock.
func (r *recorder) oldestOfMost() (oldest int) {
	count := map[kind]int{}
	for _, d := range r.decisions {
		count[d.Kind]++
	}
	for i, d := range r.decisions {
		if count[d.Kind] > count[r.decisions[oldest].Kind] {
			oldest = i
		}
	}
	return oldest
}

// describe returns the method and the host of req.
func describe(req *http.Request) (method, host string) {
	method = http.MethodGet
	if req.Method != "" {
		method = clean(req.Method)
	}
	if req.URL != nil {
		host = clean(req.URL.Host)
	}
	return method, host
}

// A recording is a copy of what a recorder has.
type recording struct {
	bins      []bin // oldest first; all have ended
	decisions []decision
	inFlight  int
	empty     bool
}

// copy returns what r has as of now. The latest decision is first.
func (r *recorder) copy(now time.Time) recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := recording{inFlight: r.inFlight, empty: !r.recorded, decisions: []decision{}}
	last := binIndex(now)
	for i := last - numBins; i < last; i++ {
		b := bin{index: i}
		if i >= 0 && r.bins[i%int64(len(r.bins))].index == i {
			b = r.bins[i%int64(len(r.bins))]
		}
		c.bins = append(c.bins, b)
	}
	for i := len(r.decisions) - 1; i >= 0; i-- {
		c.decisions = append(c.decisions, *r.decisions[i])
	}
	return c
}
